"""The largest elements of an output as text, for callers that want labels instead of numbers; knows no requests."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tidemill.dtype import DType
from tidemill.errors import InvalidArgument
from tidemill.protocol.types import Array

__all__ = ["classify"]

_MAX_ELEMENTS = 1_000_000


def classify(array: Array, count: int, *, batched: bool, labels: Sequence[str] = (), name: str = "output") -> Array:
    """Name the largest elements.

    Args:
        array: The output, of any numeric dtype.
        count: How many to name; fewer if there are not as many.
        batched: Whether each row of axis 0 is classified by itself.
        labels: The text of each index, where known.
        name: What errors call the output.

    Returns:
        BYTES of shape [rows, count], or [count]: "<value>:<index>" or "<value>:<index>:<label>", largest first.

    Raises:
        InvalidArgument: The output holds no numbers, or too many.
    """
    dtype = DType.from_numpy(array.dtype)
    if dtype in (DType.string, DType.bool):
        raise InvalidArgument(
            f"{name} is {dtype.wire}, which has no largest elements; ask for it without classification"
        )
    if array.size > _MAX_ELEMENTS:
        raise InvalidArgument(f"{name} has {array.size} elements, at most {_MAX_ELEMENTS} are classified")
    rows = array.reshape(len(array), math.prod(array.shape[1:])) if batched and array.ndim else array.reshape(1, -1)
    texts = [_largest(row, count, labels) for row in rows]
    named = np.empty((len(rows), min(count, rows.shape[1])), dtype=np.object_)
    for row, text in zip(named, texts, strict=True):
        row[:] = text
    return named if batched and array.ndim else named[0]


def _largest(row: Array, count: int, labels: Sequence[str]) -> list[bytes]:
    order = _descending(row)[:count].tolist()
    return [_text(row[index], index, labels) for index in order]


def _descending(row: Array) -> Array:
    """Indices by falling value; equal values in rising order of index, NaN last."""
    keys = row.astype(np.float64) if DType.from_numpy(row.dtype).is_float() else row
    if keys.dtype.kind == "f":
        keys = np.where(np.isnan(keys), -np.inf, keys)
    return len(row) - 1 - np.argsort(keys[::-1], kind="stable")[::-1]


def _text(value: object, index: int, labels: Sequence[str]) -> bytes:
    number = f"{value}" if isinstance(value, np.integer) else f"{float(value):.6f}"  # type: ignore[arg-type]
    label = f":{labels[index]}" if index < len(labels) else ""
    return f"{number}:{index}{label}".encode()
