"""Where an ONNX file says that its data lies, read and judged without onnx, before any runtime opens a file."""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path, PurePosixPath

from tidemill.bundle.wire import fields
from tidemill.errors import InvalidBundle

__all__ = ["ExternalData", "check_ranges", "external_data"]

_MAX_DEPTH = 64

# Which fields of onnx.proto lead to tensors: message -> field number -> message.
_PATHS: Mapping[str, Mapping[int, str]] = {
    "Model": {7: "Graph", 25: "Function"},
    "Graph": {1: "Node", 5: "Tensor", 15: "SparseTensor"},
    "Function": {7: "Node", 11: "Attribute"},
    "Node": {5: "Attribute"},
    "Attribute": {5: "Tensor", 6: "Graph", 10: "Tensor", 11: "Graph", 22: "SparseTensor", 23: "SparseTensor"},
    "SparseTensor": {1: "Tensor", 2: "Tensor"},
}
_TENSOR_NAME, _TENSOR_EXTERNAL = 8, 13
_LOCATION = b"location"  # what has external data has this key, and most messages have not


@dataclass(frozen=True, slots=True)
class ExternalData:
    """A tensor whose bytes lie in another file.

    Attributes:
        tensor: The tensor's name.
        told: What the file says of the place: location, offset, length, ...
    """

    tensor: str
    told: Mapping[str, str]

    @property
    def location(self) -> str:
        """The file, relative to the ONNX file's folder."""
        location = self.told.get("location", "")
        inside = _inside(location)
        if inside is None:
            raise InvalidBundle(
                f"the data of tensor {self.tensor!r} is said to lie in {location!r}, which leads out of the bundle's "
                "folder; put the file itself there"
            )
        return inside

    def check_within(self, size: int) -> None:
        """Raise InvalidBundle if the range is not one of a file of this many bytes."""
        offset = self._number("offset", 0)
        length = self._number("length", max(size - offset, 0))
        if offset + length > size:
            raise InvalidBundle(
                f"the data of tensor {self.tensor!r} is said to be bytes {offset} to {offset + length} of "
                f"{self.location}, which has {size}"
            )

    def _number(self, key: str, default: int) -> int:
        text = self.told.get(key)
        if text is None:
            return default
        if not text.isascii() or not text.isdigit():
            raise InvalidBundle(f"the data of tensor {self.tensor!r} has {key} {text[:40]!r}, expected a number >= 0")
        return int(text)


@lru_cache(maxsize=64)  # a model's thousand weights lie in one file or a few
def _inside(location: str) -> str | None:
    """The place within the folder, None if it leads out."""
    path = PurePosixPath(location)
    leads_out = not path.parts or path.is_absolute() or ".." in path.parts or "\0" in location or "\\" in location
    return None if leads_out else str(path)


def external_data(path: Path) -> Iterator[ExternalData]:
    """The places outside an ONNX file at which its tensors lie, those in functions and bodies included.

    Raises:
        InvalidBundle: It is no ONNX file.
    """
    with path.open("rb") as file:
        if path.stat().st_size == 0:  # mmap refuses empty files
            return
        content = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    try:
        yield from _walk("Model", content, 0)
    except InvalidBundle as error:
        raise InvalidBundle(f"{path.name}: {error}") from None
    except ValueError as error:
        raise InvalidBundle(f"{path.name} is no ONNX model: {error}") from None


def check_ranges(path: Path, sizes: Mapping[str, int]) -> None:
    """Judge where an ONNX file's tensors lie.

    Args:
        path: The file.
        sizes: The bytes of the files that they may lie in, by path.

    Raises:
        InvalidBundle: A place is outside of these files; the message names the tensor.
    """
    for place in external_data(path):
        if place.location not in sizes:
            raise InvalidBundle(
                f"the data of tensor {place.tensor!r} is said to lie in {place.location}, no file of the bundle"
            )
        place.check_within(sizes[place.location])


def _walk(message: str, content: memoryview, depth: int) -> Iterator[ExternalData]:
    if depth > _MAX_DEPTH:
        raise ValueError(f"its graphs are nested over {_MAX_DEPTH} deep")
    if message not in ("Model", "Graph"):
        text = bytes(content)
        if _LOCATION not in text:
            return
        if message == "Tensor":
            yield from _read_tensor(text)
            return
    paths = _PATHS[message]
    for field, value in fields(content):
        if field in paths:
            yield from _walk(paths[field], value, depth + 1)


def _read_tensor(content: bytes) -> Iterator[ExternalData]:
    name, places = "", {}
    for field, value in fields(content):
        if field == _TENSOR_NAME:
            name = value.decode(errors="replace")
        elif field == _TENSOR_EXTERNAL:
            pair = dict(fields(value))
            key = pair.get(1, b"").decode()
            if key in places:
                raise ValueError(f"tensor {name!r} names the {key} of its data twice")
            places[key] = pair.get(2, b"").decode()
    if places:
        yield ExternalData(name, places)
