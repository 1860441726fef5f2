"""Regions of system shared memory that callers register and name instead of sending tensors; knows no wire.

Regions are read and written through their file, not mapped: a caller that shrinks its region gets an error, where a
mapping would kill the server, and no tensor changes while the model computes with it.
"""

from __future__ import annotations

import os
import stat
import weakref
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tidemill.dtype import DType
from tidemill.errors import AlreadyExists, InvalidArgument, NotFound, TooLarge, Unsupported
from tidemill.protocol.requested import ReadRegion
from tidemill.protocol.tensors import to_bytes
from tidemill.protocol.types import Array, RegionSlice, RequestedOutput

__all__ = ["HeldSlice", "Region", "SharedMemory"]

_ROOT = Path("/dev/shm")
_RESERVED = "triton_python_backend_shm_region_"
_MAX_NAME = 255
_MAX_REGIONS = 1024
_OFF = "system shared memory is off; the operator can allow it (system_shared_memory: true)"


class Region:
    """A registered part of a shared memory object; closed when nobody holds it any more."""

    def __init__(self, name: str, key: str, offset: int, byte_size: int, file: int) -> None:
        self.name = name
        self.key = key
        self.offset = offset
        self.byte_size = byte_size
        self._file = file
        weakref.finalize(self, os.close, file)

    def read(self, offset: int, size: int) -> memoryview:
        """A copy of `size` bytes from `offset` on; InvalidArgument if they are no longer there."""
        buffer = np.empty(size, np.uint8).data
        done = 0
        while done < size:
            got = os.preadv(self._file, [buffer[done:]], self.offset + offset + done)
            if not got:
                raise self._shrunk()
            done += got
        return buffer

    def write(self, offset: int, data: bytes | memoryview) -> None:
        """Store `data` from `offset` on; InvalidArgument if the object has become too small."""
        start = self.offset + offset
        if os.fstat(self._file).st_size < start + len(data):
            raise self._shrunk()
        view, done = memoryview(data), 0
        while done < len(view):
            done += os.pwrite(self._file, view[done:], start + done)

    def _shrunk(self) -> InvalidArgument:
        return InvalidArgument(f"shared memory region {self.name!r} has shrunk since it was registered")


@dataclass(frozen=True, slots=True)
class HeldSlice:
    """A piece of a region, kept open for an answer even if the region is unregistered meanwhile."""

    region: Region
    piece: RegionSlice

    def write(self, array: Array, name: str) -> RegionSlice:
        """Store an output's bytes and tell where they lie; InvalidArgument if there is no room."""
        data = to_bytes(array, DType.from_numpy(array.dtype), name=f"output {name!r}")
        if len(data) > self.piece.byte_size:
            raise InvalidArgument(
                f"output {name!r} has {len(data)} bytes, shared_memory_byte_size is {self.piece.byte_size} "
                f"(region {self.piece.name!r})"
            )
        self.region.write(self.piece.offset, data)
        return RegionSlice(self.piece.name, len(data), self.piece.offset)


class SharedMemory:
    """The regions of one server by name."""

    def __init__(self, *, allowed: bool, limit: int, root: Path = _ROOT) -> None:
        """Begin without regions.

        Args:
            allowed: Whether callers may register any.
            limit: The most bytes that one request may read.
            root: Where shared memory objects lie.
        """
        self._allowed = allowed
        self._limit = limit
        self._root = root
        self._regions: dict[str, Region] = {}

    @property
    def allowed(self) -> bool:
        """Whether callers may register regions."""
        return self._allowed

    def register(self, name: str, key: str, byte_size: int, offset: int = 0) -> None:
        """Open a shared memory object, which must exist and be large enough.

        Args:
            name: What requests will call the region.
            key: The object's POSIX name, such as "/my_region".
            byte_size: The region's size.
            offset: Where the region starts in the object.

        Raises:
            Unsupported: Shared memory is off, or this system has none.
            InvalidArgument: The name, key, size or offset is wrong.
            AlreadyExists: There is a region of this name.
        """
        if not self._allowed:
            raise Unsupported(_OFF)
        if not name or len(name) > _MAX_NAME:
            raise InvalidArgument(f"a region's name has 1 to {_MAX_NAME} characters, not {len(name)}")
        if name in self._regions:
            raise AlreadyExists(f"shared memory region {name!r} is registered already; unregister it first")
        if len(self._regions) >= _MAX_REGIONS:
            raise TooLarge(f"{_MAX_REGIONS} regions are registered, which is the limit; unregister some")
        if byte_size <= 0 or offset < 0:
            raise InvalidArgument(
                f"region {name!r} has byte_size {byte_size} and offset {offset}; expected > 0 and >= 0"
            )
        file = self._open(key)
        region = Region(name, key, offset, byte_size, file)
        size = os.fstat(file).st_size
        if offset + byte_size > size:
            raise InvalidArgument(f"region {name!r} ends at byte {offset + byte_size}, {key!r} has {size} bytes")
        self._regions[name] = region

    def unregister(self, name: str = "") -> None:
        """Forget a region, or all of them without a name; requests that use it go on. Unknown names are no error."""
        if name:
            self._regions.pop(name, None)
        else:
            self._regions.clear()

    def regions(self, name: str = "") -> list[Region]:
        """The region of this name, or all of them; NotFound if there is none of the name."""
        return [self._find(name)] if name else list(self._regions.values())

    def reader(self) -> ReadRegion:
        """Reads the inputs of one request, and no more bytes than one request may have."""
        left = self._limit

        def read(piece: RegionSlice) -> memoryview:
            nonlocal left
            region = self._checked(piece)
            left -= piece.byte_size
            if left < 0:
                raise TooLarge(f"the inputs in shared memory are over {self._limit} bytes (max_request_bytes)")
            return region.read(piece.offset, piece.byte_size)

        return read

    def hold(self, outputs: Iterable[RequestedOutput]) -> dict[str, HeldSlice]:
        """The places of the outputs that go into shared memory, checked before anything is run."""
        return {
            output.name: HeldSlice(self._checked(output.region), output.region) for output in outputs if output.region
        }

    def _checked(self, piece: RegionSlice) -> Region:
        region = self._find(piece.name)
        if piece.offset + piece.byte_size > region.byte_size:
            raise InvalidArgument(
                f"shared memory region {piece.name!r} has {region.byte_size} bytes; asked for were {piece.byte_size} "
                f"from byte {piece.offset} on"
            )
        return region

    def _find(self, name: str) -> Region:
        if not self._allowed:
            raise Unsupported(_OFF)
        region = self._regions.get(name)
        if region is None:
            raise NotFound(f"unable to find shared memory region {name[:_MAX_NAME]!r}")
        return region

    def _open(self, key: str) -> int:
        plain = key.removeprefix("/")
        if not plain or plain in (".", "..") or "/" in plain or "\0" in plain or len(plain) > _MAX_NAME:
            raise InvalidArgument(f"{key[:_MAX_NAME]!r} is no shared memory object's name such as '/name'")
        if plain.startswith(_RESERVED):
            raise InvalidArgument(f"shared memory objects that start with {_RESERVED!r} are reserved")
        if not self._root.is_dir():
            raise Unsupported(f"this system keeps no shared memory in {self._root}")
        try:
            file = os.open(self._root / plain, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError as error:
            raise InvalidArgument(f"unable to open shared memory object {key!r}: {error.strerror}") from None
        if not stat.S_ISREG(os.fstat(file).st_mode):
            os.close(file)
            raise InvalidArgument(f"{key!r} is no shared memory object")
        return file
