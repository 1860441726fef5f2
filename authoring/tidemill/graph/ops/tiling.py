"""Operators that repeat what a tensor holds."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from tidemill.dtype import DType
from tidemill.graph.context import as_tensor, current, emit
from tidemill.graph.dim import Dim, DimLike, StaticDim
from tidemill.graph.fault import op_fault
from tidemill.graph.ops.axes import resolve_axis
from tidemill.graph.ops.elementwise import greater
from tidemill.graph.ops.promote import TensorLike, cast_to
from tidemill.graph.ops.shaping import broadcast_to, flatten, reshape, unsqueeze
from tidemill.graph.ops.sizing import sized
from tidemill.graph.shape import Shape
from tidemill.graph.type import TensorType

if TYPE_CHECKING:
    from tidemill.graph.value import TensorValue

__all__ = ["repeat_interleave", "tile"]


def tile(x: TensorLike, repeats: Iterable[DimLike]) -> TensorValue:
    """The whole tensor side by side with itself, `repeats[i]` times along axis `i`.

    Args:
        x: Any tensor.
        repeats: One positive count for each axis.
    """
    value, counts = as_tensor(x), Shape(repeats)
    if len(counts) != value.rank or any(isinstance(count, StaticDim) and count.dim < 1 for count in counts):
        raise op_fault("tile", {"x": value}, f"repeats {counts} must be one positive count for each axis")
    if all(count == 1 for count in counts):
        return value
    shape = [dim * count for dim, count in zip(value.shape, counts, strict=True)]
    return emit("Tile", [value, current().extents(counts)], value.type.with_shape(shape))


def repeat_interleave(
    x: TensorLike, repeats: int | TensorValue, axis: int | None = None, out_dim: DimLike | None = None
) -> TensorValue:
    """Each element along `axis` several times in a row.

    Args:
        x: Any tensor.
        repeats: How often: a positive number, or an integer tensor, of rank 0 or [size of the axis]; negative counts
            in it are 0.
        axis: The axis to repeat along; None flattens `x` first.
        out_dim: The name of the new size; needed when `repeats` is a tensor.
    """
    value = flatten(x) if axis is None else as_tensor(x)
    index = resolve_axis("repeat_interleave", value, axis or 0)
    if hasattr(repeats, "__tensorvalue__"):
        return _repeat_each(value, as_tensor(repeats), index, out_dim)
    if repeats < 1:
        raise op_fault("repeat_interleave", {"x": value}, f"repeats must be positive, not {repeats}")
    before, after = value.shape[: index + 1], value.shape[index + 1 :]
    wide = broadcast_to(unsqueeze(value, index + 1), [*before, repeats, *after])
    return reshape(wide, [*before[:-1], before[-1] * repeats, *after])


def _repeat_each(value: TensorValue, repeats: TensorValue, axis: int, out_dim: DimLike | None) -> TensorValue:
    if out_dim is None:
        raise ValueError("out_dim must be provided for TensorValue repeats")
    size = value.shape[axis]
    if not repeats.dtype.is_integral() or repeats.rank > 1 or (repeats.rank and repeats.shape[0] not in (1, size)):
        raise op_fault(
            "repeat_interleave", {"x": value, "repeats": repeats}, f"repeats must be integers [] or [{size}]"
        )
    counts = broadcast_to(cast_to(repeats, DType.int64), [size])
    return _gathered(value, _sources(counts, Dim(out_dim)), axis, Dim(out_dim))


def _sources(counts: TensorValue, total: Dim) -> TensorValue:
    """Which element each result comes from: NonZero of a mask that has `counts[i]` true places in row i."""
    axes, zero, one = (current().constant(np.array(number, np.int64)) for number in ([0], 0, 1))
    longest = emit("ReduceMax", [counts, axes], TensorType(DType.int64, []), keepdims=0)
    columns = emit("Range", [zero, longest, one], TensorType(DType.int64, ["longest"]))
    mask = greater(unsqueeze(counts, 1), columns)
    places = emit("NonZero", [mask], TensorType(DType.int64, [2, total]))
    return emit("Gather", [places, zero], TensorType(DType.int64, [total]), axis=0)


def _gathered(value: TensorValue, sources: TensorValue, axis: int, dim: Dim) -> TensorValue:
    shape = [*value.shape[:axis], dim, *value.shape[axis + 1 :]]
    result = emit("Gather", [value, sources], value.type.with_shape(shape), axis=axis)
    return sized(result, axis)
