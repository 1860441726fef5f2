"""Operators that pick or mark elements by what they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tidemill.dtype import DType
from tidemill.graph.context import as_tensor, current, emit
from tidemill.graph.dim import Dim, DimLike
from tidemill.graph.fault import op_fault
from tidemill.graph.ops.arange import positions
from tidemill.graph.ops.axes import check_axis
from tidemill.graph.ops.elementwise import equal, not_equal
from tidemill.graph.ops.indexing import check_indices
from tidemill.graph.ops.promote import TensorLike, cast_to, is_weak, weak_constant
from tidemill.graph.ops.shaping import broadcast_to, flatten, permute, reshape, unsqueeze
from tidemill.graph.ops.sizing import sized
from tidemill.graph.type import TensorType

if TYPE_CHECKING:
    from tidemill.graph.value import TensorValue

__all__ = ["masked_scatter", "nonzero", "one_hot"]


def nonzero(x: TensorLike, out_dim: DimLike) -> TensorValue:
    """The positions of all elements that are true or not zero, in row-major order.

    Args:
        x: Numbers or bools, of rank 1 or more.
        out_dim: The name of their count, which only the run shows.

    Returns:
        int64 [out_dim, x.rank].
    """
    value = as_tensor(x)
    if not value.rank:
        raise op_fault("nonzero", {"x": value}, "Scalar inputs not supported; reshape it to [1]")
    truth = value if value.dtype is DType.bool else not_equal(value, 0)
    columns = emit("NonZero", [truth], TensorType(DType.int64, [value.rank, out_dim], value.device))
    return permute(sized(columns, 1), [1, 0])


def masked_scatter(input: TensorLike, mask: TensorLike, updates: TensorLike, out_dim: DimLike) -> TensorValue:
    """A copy of `input` in which the elements of `updates`, in order, replace those where `mask` holds.

    Args:
        input: Any tensor.
        mask: Bools, or numbers that count as true where they are not zero; broadcast to `input`.
        updates: As many elements as there are places, or more, of the dtype of `input`. Too few fail the run.
        out_dim: The name of the count of places, which only the run shows.
    """
    value = as_tensor(input)
    update = flatten(weak_constant(updates, value) if is_weak(updates) else as_tensor(updates))
    if update.dtype is not value.dtype:
        raise op_fault("masked_scatter", {"input": value, "updates": update}, "updates must have the dtype of input")
    truth = current().constant(np.asarray(mask, np.bool_)) if _is_literal(mask) else as_tensor(mask)
    places = nonzero(broadcast_to(truth, value.shape), out_dim)
    used = _first(update, Dim(out_dim))
    return emit("ScatterND", [value, places, used], value.type)


def one_hot(indices: TensorLike, depth: int, axis: int = -1, dtype: DType = DType.float32) -> TensorValue:
    """1 at the place that each index names, 0 elsewhere, along a new axis.

    Args:
        indices: int32 or int64. One outside of [0, depth) gives only zeros.
        depth: The size of the new axis.
        axis: Where the new axis stands in the result.
        dtype: The element type of the result.
    """
    value = as_tensor(indices)
    check_indices("one_hot", value)
    index = check_axis("one_hot", axis, value.rank + 1)
    classes = reshape(positions(Dim(depth)), [depth, *[1] * (value.rank - index)])
    return cast_to(equal(unsqueeze(cast_to(value, DType.int64), index), classes), dtype)


def _is_literal(value: object) -> bool:
    return is_weak(value) or isinstance(value, list | tuple)


def _first(update: TensorValue, count: Dim) -> TensorValue:
    start, axis = (current().constant(np.array([0], np.int64)) for _ in range(2))
    return emit("Slice", [update, start, current().extents([count]), axis], update.type.with_shape([count]))
