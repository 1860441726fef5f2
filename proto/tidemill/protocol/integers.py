"""Whole numbers of either wire as tensors, exactly or not at all; knows neither JSON nor protobuf."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tidemill.dtype import DType
from tidemill.errors import InvalidArgument
from tidemill.protocol.types import Array

__all__ = ["from_integers"]


def from_integers(values: Sequence[int], dtype: DType, *, name: str = "tensor") -> Array:
    """A flat array of an integer dtype.

    Raises:
        InvalidArgument: A value lies outside the dtype's range; the message gives its index.
    """
    low, high = _limits(dtype)
    if values and (min(values) < low or max(values) > high):
        index = next(index for index, value in enumerate(values) if not low <= value <= high)
        raise InvalidArgument(f"{name}: {values[index]} at index {index} does not fit {dtype.wire} ({low} to {high})")
    return np.array(values, dtype=dtype.to_numpy())


def _limits(dtype: DType) -> tuple[int, int]:
    bits = 8 * dtype.size_in_bytes
    return (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if dtype.is_signed_integral() else (0, 2**bits - 1)
