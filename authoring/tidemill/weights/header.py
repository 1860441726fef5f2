"""The header of a safetensors file, read without trusting it; touches no tensor's bytes."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from os import PathLike
from pathlib import Path
from typing import Any

from tidemill.dtype import DType
from tidemill.weights.store import LocalStore, WeightStore

__all__ = ["SafetensorsHeader", "TensorEntry", "parse_header", "read_header", "read_header_from"]

_MAX_HEADER_BYTES = 100_000_000
_PREFIX_BYTES = 8


@dataclass(frozen=True, slots=True)
class TensorEntry:
    """Where a tensor lies in its file.

    Attributes:
        name: Its key.
        dtype: The element type; None if tidemill has none for `type_name`. Such a tensor is refused when used.
        shape: The sizes.
        offset: The first byte, counted from the start of the file.
        length: The number of bytes.
        type_name: The element type as the file writes it.
    """

    name: str
    dtype: DType | None
    shape: tuple[int, ...]
    offset: int
    length: int
    type_name: str

    def require_dtype(self) -> DType:
        """The element type; TypeError if tidemill has none for it."""
        if self.dtype is None:
            raise TypeError(f"weight {self.name!r} has element type {self.type_name}, which tidemill cannot use")
        return self.dtype


@dataclass(frozen=True, slots=True)
class SafetensorsHeader:
    """What a file holds.

    Attributes:
        path: The file, or its name in a store.
        data_start: The first byte after the header.
        tensors: The tensors in file order.
        metadata: The file's free text entries.
    """

    path: Path
    data_start: int
    tensors: Mapping[str, TensorEntry]
    metadata: Mapping[str, str] = field(default_factory=dict)


def read_header(path: str | PathLike[str]) -> SafetensorsHeader:
    """Read the header of a file; no tensor is read.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: It is not a whole, well-formed safetensors file; the message names the file and the fact.
    """
    file = Path(path)
    return _read(LocalStore(file.parent), file.name, file)


def read_header_from(store: WeightStore, name: str) -> SafetensorsHeader:
    """Read the header of a file in a store; as `read_header`."""
    return _read(store, name, Path(name))


def parse_header(text: bytes, file_size: int, path: Path) -> SafetensorsHeader:
    """Turn the JSON part of a file into a header.

    Args:
        text: The JSON, without the length before it.
        file_size: The length of the whole file in bytes.
        path: What to call the file.

    Raises:
        ValueError: The text contradicts the format or the file's size.
    """
    fields = _load_object(text, path)
    metadata = fields.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise ValueError(f"{path}: __metadata__ must map strings to strings")
    data_start = _PREFIX_BYTES + len(text)
    entries = [_parse_entry(name, value, data_start, path) for name, value in fields.items()]
    entries.sort(key=lambda entry: (entry.offset, entry.length))
    _check_gapless(entries, data_start, file_size, path)
    return SafetensorsHeader(path, data_start, {entry.name: entry for entry in entries}, metadata)


def _read(store: WeightStore, name: str, path: Path) -> SafetensorsHeader:
    size = store.size(name)
    if size < _PREFIX_BYTES:
        raise ValueError(f"{path}: has {size} bytes, too few for a safetensors file")
    length = int.from_bytes(store.read(name, 0, _PREFIX_BYTES), "little")
    if length > _MAX_HEADER_BYTES:
        raise ValueError(f"{path}: the header is said to have {length} bytes; at most {_MAX_HEADER_BYTES} are read")
    if length > size - _PREFIX_BYTES:
        raise ValueError(f"{path}: the header is said to have {length} bytes, the file has only {size}")
    return parse_header(bytes(store.read(name, _PREFIX_BYTES, length)), size, path)


def _load_object(text: bytes, path: Path) -> dict[str, Any]:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(pairs)
        if len(made) < len(pairs):
            names = [name for name, _ in pairs]
            raise ValueError(f"the name {next(name for name in names if names.count(name) > 1)!r} stands twice")
        return made

    try:
        fields = json.loads(text.decode("utf-8"), object_pairs_hook=unique)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: the header is not the JSON of a safetensors file: {error}") from None
    if not isinstance(fields, dict):
        raise ValueError(f"{path}: the header is a JSON {type(fields).__name__}, expected an object")
    return fields


def _parse_entry(name: str, value: Any, data_start: int, path: Path) -> TensorEntry:
    if not isinstance(value, dict) or value.keys() != {"dtype", "shape", "data_offsets"}:
        raise ValueError(f"{path}: tensor {name!r} must have exactly dtype, shape and data_offsets")
    shape, offsets, type_name = value["shape"], value["data_offsets"], value["dtype"]
    if not isinstance(type_name, str) or not _are_sizes(shape):
        raise ValueError(f"{path}: tensor {name!r} has dtype {type_name!r} and shape {shape!r}")
    if not _are_sizes(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise ValueError(f"{path}: tensor {name!r} has data_offsets {offsets!r}, expected [begin, end]")
    begin, end = offsets
    entry = TensorEntry(name, _dtype(type_name), tuple(shape), data_start + begin, end - begin, type_name)
    if entry.dtype is not None and entry.length != math.prod(shape) * entry.dtype.size_in_bytes:
        raise ValueError(f"{path}: tensor {name!r} has {entry.length} bytes, {type_name} {shape} takes another number")
    return entry


def _are_sizes(value: Any) -> bool:
    return isinstance(value, list) and all(type(item) is int and item >= 0 for item in value)


def _dtype(type_name: str) -> DType | None:
    try:
        return DType.from_safetensors(type_name)
    except ValueError:
        return None


def _check_gapless(entries: list[TensorEntry], data_start: int, file_size: int, path: Path) -> None:
    start = TensorEntry("the header", None, (), 0, data_start, "")
    end = TensorEntry("the end of the file", None, (), file_size, 0, "")
    for before, after in pairwise([start, *entries, end]):
        difference = after.offset - (before.offset + before.length)
        if difference:
            what = f"{difference} bytes that belong to no tensor" if difference > 0 else f"{-difference} bytes too few"
            raise ValueError(f"{path}: between {before.name!r} and {after.name!r} there are {what}")
