"""Whether an array fits a spec by itself, symbols aside; knows no names and raises nothing."""

from __future__ import annotations

from tidemill.dtype import DType
from tidemill.protocol.types import Array, TensorSpec

__all__ = ["fits"]


def fits(spec: TensorSpec, array: Array) -> bool:
    """Whether dtype, rank and fixed dims are those of the spec."""
    return (
        DType.from_numpy(array.dtype) is spec.dtype
        and array.ndim == len(spec.shape)
        and all(dim == size for dim, size in zip(spec.shape, array.shape, strict=True) if isinstance(dim, int))
    )
