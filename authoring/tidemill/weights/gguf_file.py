"""GGUF files as arrays, through the package gguf; quantised tensors become float32."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from os import PathLike
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from tidemill.weights.safetensors import Array

__all__ = ["GgufFile", "read_gguf_metadata"]


class GgufFile(Mapping[str, Array]):
    """The tensors of a GGUF file by name, made when asked for.

    Plain tensors are read-only arrays over the mapped file. Quantised ones are computed anew each time, as float32.

    Args:
        path: The file.

    Raises:
        ModuleNotFoundError: The package gguf is not installed.
        ValueError: It is not a whole GGUF file.
    """

    def __init__(self, path: str | PathLike[str]) -> None:
        reader = _open(path)
        self._tensors = {tensor.name: tensor for tensor in reader.tensors}

    def __getitem__(self, name: str) -> Array:
        tensor = self._tensors[name]
        return _values(tensor.data, tensor.tensor_type).reshape([int(size) for size in reversed(tensor.shape)])

    def packed(self, name: str) -> tuple[str, Array]:
        """How a tensor is packed, and its bytes.

        Returns:
            The name of the encoding, such as "Q4_1", and uint8 [..., bytes of a row]; of plain numbers their array.
        """
        tensor = self._tensors[name]
        return tensor.tensor_type.name, np.asarray(tensor.data)

    def __contains__(self, name: object) -> bool:
        return name in self._tensors

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)


def read_gguf_metadata(path: str | PathLike[str]) -> dict[str, Any]:
    """What a GGUF file says of its model: sizes, and its tokenizer's tokens and merges.

    Args:
        path: The file.

    Returns:
        Numbers, strings and lists of them by key, such as `llama.block_count` and `tokenizer.ggml.tokens`.

    Raises:
        ModuleNotFoundError: The package gguf is not installed.
        ValueError: It is not a whole GGUF file.
    """
    return {key: field.contents() for key, field in _open(path).fields.items() if not key.startswith("GGUF.")}


def _open(path: str | PathLike[str]) -> Any:
    try:
        from gguf import GGUFReader
    except ModuleNotFoundError:
        raise ModuleNotFoundError(
            f"{path} takes the package gguf; run: pip install 'tidemill[gguf]'", name="gguf"
        ) from None
    try:
        return GGUFReader(Path(path))
    except (ValueError, LookupError, OverflowError, TypeError) as error:
        raise ValueError(f"{path} cannot be read as a GGUF file: {error}") from None


def _values(data: Any, encoding: Any) -> Array:
    from gguf.quants import dequantize

    if encoding.name == "BF16":
        exact: Array = np.asarray(data).view(ml_dtypes.bfloat16)
        return exact
    if encoding.name in ("F16", "F32", "F64", "I8", "I16", "I32", "I64"):
        return np.asarray(data)
    return np.asarray(dequantize(data, encoding))
