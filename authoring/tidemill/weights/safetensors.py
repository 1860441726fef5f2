"""Safetensors files as numpy arrays, in and out; every element type, no copy on reading, C order on writing."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from os import PathLike
from pathlib import Path
from typing import Any, TypeAlias
from uuid import uuid4

import numpy as np
import numpy.typing as npt

from tidemill.driver.buffer import Buffer
from tidemill.driver.dlpack import DLPackArray
from tidemill.dtype import DType
from tidemill.weights.header import SafetensorsHeader, TensorEntry, read_header
from tidemill.weights.store import LocalStore, WeightStore

__all__ = ["Array", "SafetensorsFile", "open_safetensors", "view_tensor", "write_safetensors"]

Array: TypeAlias = npt.NDArray[Any]


class SafetensorsFile(Mapping[str, Array]):
    """The tensors of one file: read-only arrays over its mapped bytes, made when asked for.

    Attributes:
        header: What the file holds.
    """

    def __init__(self, header: SafetensorsHeader) -> None:
        self.header = header
        self._store = LocalStore(header.path.parent)

    def __getitem__(self, name: str) -> Array:
        return view_tensor(self._store, self.header.path.name, self.header.tensors[name])

    def __contains__(self, name: object) -> bool:
        return name in self.header.tensors

    def __iter__(self) -> Iterator[str]:
        return iter(self.header.tensors)

    def __len__(self) -> int:
        return len(self.header.tensors)


def open_safetensors(path: str | PathLike[str]) -> SafetensorsFile:
    """Open a file as a mapping from name to read-only array.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: It is not a whole, well-formed safetensors file.
    """
    return SafetensorsFile(read_header(path))


def view_tensor(store: WeightStore, file: str, entry: TensorEntry) -> Array:
    """The array over a tensor's bytes in a store; TypeError if tidemill has no such element type."""
    dtype = entry.require_dtype().to_numpy()
    return np.frombuffer(store.read(file, entry.offset, entry.length), dtype).reshape(entry.shape)


def write_safetensors(
    path: str | PathLike[str], tensors: Mapping[str, DLPackArray], metadata: Mapping[str, str] | None = None
) -> None:
    """Write a file that either is whole or is not there.

    Arrays of any memory layout and byte order are written by their values, in C order and little endian. Tensors with
    wide elements come first, so that each lies at a multiple of its element's size.

    Args:
        path: The file; replaced if it exists.
        tensors: Numpy arrays, Buffers or other DLPack exporters by name.
        metadata: Free text entries.

    Raises:
        TypeError: An array's dtype has no safetensors type; the message names the weight.
    """
    target = Path(path)
    arrays = {name: _on_host(value) for name, value in tensors.items()}
    ordered = sorted(arrays.items(), key=lambda item: -item[1].itemsize)
    header = _format_header(ordered, metadata or {})
    draft = target.with_name(f".{target.name}.{uuid4().hex}")
    try:
        with draft.open("xb") as file:
            file.write(header)
            for _, array in ordered:
                file.write(_little_endian(array).data)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(target)
    finally:
        draft.unlink(missing_ok=True)


def _on_host(value: DLPackArray) -> Array:
    return value if isinstance(value, np.ndarray) else Buffer.from_dlpack(value).to_numpy()


def _format_header(tensors: list[tuple[str, Array]], metadata: Mapping[str, str]) -> bytes:
    fields: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    end = 0
    for name, array in tensors:
        begin, end = end, end + array.nbytes
        fields[name] = {"dtype": _type_name(name, array), "shape": list(array.shape), "data_offsets": [begin, end]}
    text = json.dumps(fields, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def _type_name(name: str, array: Array) -> str:
    type_name = DType.from_numpy(array.dtype).safetensors
    if type_name is None or name == "__metadata__":
        raise TypeError(f"weight {name!r} with dtype {array.dtype} cannot be written to a safetensors file")
    return type_name


def _little_endian(array: Array) -> npt.NDArray[np.uint8]:
    ordered = array.astype(array.dtype.newbyteorder("<"), order="C", copy=False)
    return ordered.reshape(-1).view(np.uint8)
