"""PyTorch checkpoints as arrays, with neither PyTorch nor unpickling: the pickle's steps are read, and few are allowed.

Both formats hold a pickled tree of dicts and, apart from it, the tensors' bytes. `pickle_steps` reads the steps of a
pickle without running them; here they build dicts, tuples and tensors, and nothing else.
"""

from __future__ import annotations

import mmap
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from io import BytesIO
from os import PathLike
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from tidemill.weights.pickle_steps import Attributes, build_tree
from tidemill.weights.safetensors import Array

__all__ = ["TORCH_SUFFIXES", "read_torch"]

TORCH_SUFFIXES = (".pt", ".pth", ".bin", ".ckpt", ".jit")

_LEGACY_MAGIC = 0x1950A86A20F9469CFC6C
_MAX_PICKLE_BYTES = 100_000_000
_MAX_DEPTH = 8
_ELEMENTS = {
    "DoubleStorage": np.float64,
    "FloatStorage": np.float32,
    "HalfStorage": np.float16,
    "BFloat16Storage": ml_dtypes.bfloat16,
    "LongStorage": np.int64,
    "IntStorage": np.int32,
    "ShortStorage": np.int16,
    "CharStorage": np.int8,
    "ByteStorage": np.uint8,
    "BoolStorage": np.bool_,
}


@dataclass(frozen=True, slots=True)
class _Storage:
    key: str
    dtype: np.dtype[Any]
    count: int


@dataclass(frozen=True, slots=True)
class _Tensor:
    """A tensor's place in a storage: offset and strides count elements."""

    storage: _Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


def read_torch(path: str | PathLike[str]) -> dict[str, Array]:
    """The tensors of a checkpoint that torch.save wrote, in the zip format or the one before it, or torch.jit.save.

    A scripted model's code is not read; its parameters and buffers have the names that its state dict would give them.

    Args:
        path: The file.

    Returns:
        Read-only arrays over the mapped file by dotted name. What is no tensor is left out.

    Raises:
        ValueError: It is no such file, or holds something else than tensors in dicts; the message names what.
    """
    file = Path(path)
    try:
        read = _read_zip if zipfile.is_zipfile(file) else _read_legacy
        tree, places = read(file)
        with file.open("rb") as opened:
            content = memoryview(mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ))
        return {name: _view(content, places, tensor) for name, tensor in _flatten(tree)}
    except (ValueError, LookupError, TypeError, AttributeError, zipfile.BadZipFile, EOFError) as error:
        raise ValueError(f"{file} cannot be read as a PyTorch checkpoint: {error}") from None


def _read_zip(file: Path) -> tuple[Any, Mapping[str, int]]:
    with zipfile.ZipFile(file) as archive:
        members = {member.filename.partition("/")[2]: member for member in archive.infolist()}
        read = [member for name, member in members.items() if name == "data.pkl" or name.startswith("data/")]
        if any(member.compress_type != zipfile.ZIP_STORED for member in read):
            raise ValueError("its parts are compressed, which torch.save never does")
        if "byteorder" in members and archive.read(members["byteorder"]) != b"little":
            raise ValueError("its numbers are not little endian")
        if members["data.pkl"].file_size > _MAX_PICKLE_BYTES:
            raise ValueError(f"its tree takes {members['data.pkl'].file_size} bytes")
        tree = build_tree(BytesIO(archive.read(members["data.pkl"])), _ALLOWED, _storage)
    with file.open("rb") as content:
        places = {
            name.removeprefix("data/"): _data_offset(content, member.header_offset)
            for name, member in members.items()
            if name.startswith("data/")
        }
    return tree, places


def _data_offset(content: Any, header: int) -> int:
    content.seek(header + 26)
    lengths = content.read(4)
    return header + 30 + int.from_bytes(lengths[:2], "little") + int.from_bytes(lengths[2:], "little")


def _read_legacy(file: Path) -> tuple[Any, Mapping[str, int]]:
    with file.open("rb") as content:
        if build_tree(content, {}) != _LEGACY_MAGIC:
            raise ValueError("it begins neither as a zip nor as a PyTorch file")
        build_tree(content, {})  # the format's version
        if not build_tree(content, {}).get("little_endian"):
            raise ValueError("its numbers are not little endian")
        storages: dict[str, _Storage] = {}

        def remember(identity: Any) -> _Storage:
            storage = _storage(identity)
            return storages.setdefault(storage.key, storage)

        tree = build_tree(content, _ALLOWED, remember)
        places = {}
        for key in build_tree(content, {}):
            places[key] = content.seek(8, 1)  # after the number of elements
            content.seek(storages[key].count * storages[key].dtype.itemsize, 1)
    return tree, places


def _storage(identity: Any) -> _Storage:
    kind, dtype, key, _, count, *view = identity
    if kind != "storage" or any(view) or not isinstance(dtype, np.dtype):
        raise ValueError(f"it refers to {kind!r}, expected a storage")
    return _Storage(key, dtype, count)


def _tensor(storage: _Storage, offset: int, shape: tuple[int, ...], strides: tuple[int, ...], *_: Any) -> _Tensor:
    return _Tensor(storage, offset, shape, strides)


def _parameter(tensor: _Tensor, *_: Any) -> _Tensor:
    return tensor


def _mapping(*pairs: Any) -> dict[Any, Any]:
    return dict(*pairs)


def _sequence(values: list[Any]) -> list[Any]:
    return values


def _scripted() -> Attributes:
    """An object of a class that the archive itself defines."""
    return Attributes()


_ALLOWED: Mapping[str, Callable[..., Any] | np.dtype[Any]] = {
    "collections.OrderedDict": _mapping,
    "torch._utils._rebuild_tensor_v2": _tensor,
    "torch._utils._rebuild_parameter": _parameter,
    **{f"torch.jit._pickle.build_{kind}list": _sequence for kind in ("int", "double", "bool", "tensor")},
    "__torch__.*": _scripted,
    **{f"torch.{name}": np.dtype(element) for name, element in _ELEMENTS.items()},
}


def _flatten(tree: Any, path: str = "", depth: int = 0) -> Iterator[tuple[str, _Tensor]]:
    if depth > _MAX_DEPTH:
        raise ValueError(f"its dicts are nested over {_MAX_DEPTH} deep")
    if isinstance(tree, _Tensor):
        yield path, tree
    elif isinstance(tree, dict):
        for key, value in tree.items():
            yield from _flatten(value, f"{path}.{key}" if path else str(key), depth + 1)


def _view(content: memoryview, places: Mapping[str, int], tensor: _Tensor) -> Array:
    storage, shape, strides = tensor.storage, tensor.shape, tensor.strides
    empty = 0 in shape
    last = tensor.offset + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
    if min((tensor.offset, storage.count, *shape, *strides)) < 0 or (not empty and last >= storage.count):
        raise ValueError(f"a tensor of shape {list(shape)} leaves its storage {storage.key!r}")
    elements = np.frombuffer(content, storage.dtype, storage.count, places[storage.key])
    width = storage.dtype.itemsize
    return np.lib.stride_tricks.as_strided(
        elements[tensor.offset :], shape, [stride * width for stride in strides], writeable=False
    )
