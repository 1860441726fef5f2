"""Where weight files lie: names to sizes and byte ranges; knows no file format."""

from __future__ import annotations

import mmap
from collections.abc import Mapping
from os import PathLike
from pathlib import Path, PurePosixPath
from typing import Protocol

__all__ = ["LocalStore", "MemoryStore", "WeightStore"]


class WeightStore(Protocol):
    """A flat set of named, immutable byte strings."""

    def list(self) -> list[str]:
        """The names, sorted."""
        ...

    def size(self, name: str) -> int:
        """The length in bytes; FileNotFoundError if there is no such name."""
        ...

    def read(self, name: str, offset: int, length: int) -> memoryview:
        """The bytes from `offset`, read-only; EOFError if they are fewer than `length`."""
        ...


class LocalStore:
    """The files of a folder, mapped into memory when first read and paged in as they are used.

    Args:
        directory: The folder; names are paths relative to it and cannot leave it.
    """

    def __init__(self, directory: str | PathLike[str]) -> None:
        self.directory = Path(directory)
        self._maps: dict[str, memoryview] = {}

    def list(self) -> list[str]:
        """The names of the files directly in the folder, sorted."""
        return sorted(file.name for file in self.directory.iterdir() if file.is_file())

    def size(self, name: str) -> int:
        """The file's length in bytes."""
        return self.path(name).stat().st_size

    def read(self, name: str, offset: int, length: int) -> memoryview:
        """A read-only view of the mapped file; the map lives as long as a view of it."""
        if name not in self._maps:
            self._maps[name] = _map(self.path(name))
        return _cut(name, self._maps[name], offset, length)

    def path(self, name: str) -> Path:
        """The file of this name; ValueError if the name leads out of the folder."""
        parts = PurePosixPath(name).parts
        if not parts or ".." in parts or PurePosixPath(name).is_absolute() or "\0" in name:
            raise ValueError(f"file name {name!r} must be a path inside {self.directory}")
        return self.directory / name


class MemoryStore:
    """Byte strings by name, for tests and for weights that never touch a disk."""

    def __init__(self, files: Mapping[str, bytes]) -> None:
        self._files = dict(files)

    def list(self) -> list[str]:
        """The names, sorted."""
        return sorted(self._files)

    def size(self, name: str) -> int:
        """The length in bytes."""
        return len(self._find(name))

    def read(self, name: str, offset: int, length: int) -> memoryview:
        """A view of the bytes."""
        return _cut(name, memoryview(self._find(name)), offset, length)

    def _find(self, name: str) -> bytes:
        if name not in self._files:
            raise FileNotFoundError(f"no {name!r} in memory; there are {', '.join(self.list()) or 'no files'}")
        return self._files[name]


def _map(path: Path) -> memoryview:
    with path.open("rb") as file:
        if path.stat().st_size == 0:  # mmap refuses empty files
            return memoryview(b"")
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


def _cut(name: str, whole: memoryview, offset: int, length: int) -> memoryview:
    if offset < 0 or length < 0 or offset + length > len(whole):
        raise EOFError(f"{name} has {len(whole)} bytes; {length} from {offset} were asked for")
    return whole[offset : offset + length]
