"""Tensors by name as a safetensors document in memory; knows no files and no requests."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

import orjson

from tidemill.dtype import DType
from tidemill.errors import InvalidArgument
from tidemill.protocol.tensors import from_bytes, to_bytes
from tidemill.protocol.types import Array

__all__ = ["from_safetensors", "to_safetensors"]

_LENGTH = struct.Struct("<Q")
_METADATA = "__metadata__"
_ALIGNMENT = 8
_MAX_HEADER = 1 << 20


def from_safetensors(body: bytes | bytearray | memoryview) -> tuple[dict[str, Array], dict[str, str]]:
    """Read a document.

    Args:
        body: The whole document.

    Returns:
        Arrays by name, views of `body` where they lie aligned, and the document's own strings.

    Raises:
        InvalidArgument: The document is damaged, or tensors overlap, leave gaps or are of an unknown dtype.
    """
    view = memoryview(body)
    header, data = _split(view)
    metadata = header.pop(_METADATA, {})
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise InvalidArgument(f"{_METADATA} of the safetensors body is not an object of strings")
    entries = sorted(((*_range(name, item), name, item) for name, item in header.items()), key=lambda entry: entry[:2])
    end = 0
    for start, stop, name, _ in entries:
        if start != end:
            raise InvalidArgument(f"input {name!r} starts at byte {start} of the safetensors data, expected {end}")
        end = stop
    if end != len(data):
        raise InvalidArgument(f"the safetensors data have {len(data)} bytes, the header describes {end}")
    return {name: _tensor(data[start:stop], name, item) for start, stop, name, item in entries}, metadata


def to_safetensors(tensors: Mapping[str, Array], metadata: Mapping[str, str]) -> list[bytes | memoryview]:
    """Write a document, as parts to be sent one after the other.

    Raises:
        InvalidArgument: A tensor is of a dtype that the format lacks (BYTES).
    """
    header: dict[str, Any] = {_METADATA: dict(metadata)}
    parts: list[bytes | memoryview] = []
    end = 0
    for name, array in tensors.items():
        dtype = DType.from_numpy(array.dtype)
        if dtype.safetensors is None:
            raise InvalidArgument(f"output {name!r} is {dtype.wire}, which safetensors cannot hold")
        parts.append(to_bytes(array, dtype, name=f"output {name!r}"))
        start, end = end, end + len(parts[-1])
        header[name] = {"dtype": dtype.safetensors, "shape": list(array.shape), "data_offsets": [start, end]}
    text = orjson.dumps(header)
    text += b" " * (-len(text) % _ALIGNMENT)
    return [_LENGTH.pack(len(text)) + text, *parts]


def _split(view: memoryview) -> tuple[dict[str, Any], memoryview]:
    length = _LENGTH.unpack_from(view)[0] if len(view) >= _LENGTH.size else -1
    start = _LENGTH.size + length
    if not 0 <= length <= _MAX_HEADER or start > len(view):
        raise InvalidArgument(
            f"the body is no safetensors document: its header length is {length} of {len(view)} bytes"
        )
    try:
        header = orjson.loads(view[_LENGTH.size : start])
    except orjson.JSONDecodeError as error:
        raise InvalidArgument(f"the safetensors header is not JSON: {error}") from None
    if not isinstance(header, dict):
        raise InvalidArgument("the safetensors header is not an object")
    return header, view[start:]


def _range(name: str, item: object) -> tuple[int, int]:
    offsets = item.get("data_offsets") if isinstance(item, dict) else None
    if not isinstance(offsets, list) or len(offsets) != 2 or any(type(offset) is not int for offset in offsets):
        raise InvalidArgument(f"input {name!r} has data_offsets {offsets!r}, expected two whole numbers")
    start, stop = offsets
    if not 0 <= start <= stop:
        raise InvalidArgument(f"input {name!r} has data_offsets {offsets}, expected a start and an end after it")
    return start, stop


def _tensor(data: memoryview, name: str, item: Mapping[str, Any]) -> Array:
    shape = item.get("shape")
    if not isinstance(shape, list) or any(type(dim) is not int for dim in shape):
        raise InvalidArgument(f"input {name!r}: shape is {shape!r}, expected a list of whole numbers")
    try:
        dtype = DType.from_safetensors(item.get("dtype", ""))
    except ValueError as error:
        raise InvalidArgument(f"input {name!r}: {error}") from None
    return from_bytes(data, dtype, shape, name=f"input {name!r}")
