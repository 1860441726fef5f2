"""Operators that write into a copy of a tensor, by position."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidemill.dtype import DType
from tidemill.graph.context import as_tensor, emit
from tidemill.graph.dim import StaticDim
from tidemill.graph.fault import op_fault
from tidemill.graph.ir import Attribute
from tidemill.graph.ops.axes import check_axis
from tidemill.graph.ops.indexing import check_indices
from tidemill.graph.ops.kernels import kernel_dtype
from tidemill.graph.ops.promote import TensorLike, cast_to, check_numbers, is_weak, weak_constant

if TYPE_CHECKING:
    from tidemill.graph.value import TensorValue

__all__ = [
    "scatter",
    "scatter_add",
    "scatter_max",
    "scatter_min",
    "scatter_mul",
    "scatter_nd",
    "scatter_nd_add",
    "scatter_nd_max",
    "scatter_nd_min",
    "scatter_nd_mul",
]


def scatter(input: TensorLike, updates: TensorLike, indices: TensorLike, axis: int = -1) -> TensorValue:
    """A copy of `input` with `updates` put at `indices` along `axis`; the last of equal indices wins.

    Args:
        input: Any tensor.
        updates: What to put, of the dtype of `input`, shaped like `indices`.
        indices: int32 or int64, of the rank of `input`, in no dim but `axis` larger than it. A negative index counts
            from the end; one out of range fails the run.
        axis: The axis that the indices are positions on; the others are where the index itself stands.
    """
    return _scatter("scatter", input, updates, indices, axis)


def scatter_add(input: TensorLike, updates: TensorLike, indices: TensorLike, axis: int = -1) -> TensorValue:
    """As `scatter`, adding up what meets at one place."""
    return _scatter("scatter_add", input, updates, indices, axis)


def scatter_mul(input: TensorLike, updates: TensorLike, indices: TensorLike, axis: int = -1) -> TensorValue:
    """As `scatter`, multiplying what meets at one place."""
    return _scatter("scatter_mul", input, updates, indices, axis)


def scatter_max(input: TensorLike, updates: TensorLike, indices: TensorLike, axis: int = -1) -> TensorValue:
    """As `scatter`, keeping the largest of what meets at one place."""
    return _scatter("scatter_max", input, updates, indices, axis)


def scatter_min(input: TensorLike, updates: TensorLike, indices: TensorLike, axis: int = -1) -> TensorValue:
    """As `scatter`, keeping the smallest of what meets at one place."""
    return _scatter("scatter_min", input, updates, indices, axis)


def scatter_nd(input: TensorLike, updates: TensorLike, indices: TensorLike) -> TensorValue:
    """A copy of `input` with slices of `updates` put at index vectors; the last of equal ones wins.

    Args:
        input: Any tensor.
        updates: What to put, of the dtype of `input`: [*indices.shape[:-1], *input.shape[k:]].
        indices: int32 or int64 [..., k]: positions on the first k axes of `input`. A negative index counts from the
            end; one out of range fails the run.
    """
    return _scatter_nd("scatter_nd", input, updates, indices)


def scatter_nd_add(input: TensorLike, updates: TensorLike, indices: TensorLike) -> TensorValue:
    """As `scatter_nd`, adding up what meets at one place."""
    return _scatter_nd("scatter_nd_add", input, updates, indices)


def scatter_nd_mul(input: TensorLike, updates: TensorLike, indices: TensorLike) -> TensorValue:
    """As `scatter_nd`, multiplying what meets at one place."""
    return _scatter_nd("scatter_nd_mul", input, updates, indices)


def scatter_nd_max(input: TensorLike, updates: TensorLike, indices: TensorLike) -> TensorValue:
    """As `scatter_nd`, keeping the largest of what meets at one place."""
    return _scatter_nd("scatter_nd_max", input, updates, indices)


def scatter_nd_min(input: TensorLike, updates: TensorLike, indices: TensorLike) -> TensorValue:
    """As `scatter_nd`, keeping the smallest of what meets at one place."""
    return _scatter_nd("scatter_nd_min", input, updates, indices)


def _scatter(op: str, input: TensorLike, updates: TensorLike, indices: TensorLike, axis: int) -> TensorValue:
    value, update, place = _operands(op, input, updates, indices)
    index = check_axis(op, axis, value.rank)
    fits = place.rank == value.rank and all(
        index == at or not (isinstance(dim, StaticDim) and isinstance(size, StaticDim)) or dim.dim <= size.dim
        for at, (dim, size) in enumerate(zip(place.shape, value.shape, strict=False))
    )
    if not fits or update.shape != place.shape:
        raise op_fault(
            op,
            {"input": value, "updates": update, "indices": place},
            f"indices must have the rank of input, be no larger but along axis {axis}, and be shaped like updates",
        )
    return _write("ScatterElements", op, [value, place, update], axis=index)


def _scatter_nd(op: str, input: TensorLike, updates: TensorLike, indices: TensorLike) -> TensorValue:
    value, update, place = _operands(op, input, updates, indices)
    depth = place.shape[-1] if place.rank else None
    if not isinstance(depth, StaticDim) or not value.rank or depth.dim > value.rank:
        raise op_fault(
            op,
            {"input": value, "indices": place},
            "the last dim of indices must be known and no larger than the rank of input",
        )
    if update.shape != [*place.shape[:-1], *value.shape[depth.dim :]]:
        raise op_fault(
            op,
            {"input": value, "updates": update, "indices": place},
            f"updates must be {[*place.shape[:-1], *value.shape[depth.dim :]]}",
        )
    return _write("ScatterND", op, [value, cast_to(place, DType.int64), update])


def _operands(
    op: str, input: TensorLike, updates: TensorLike, indices: TensorLike
) -> tuple[TensorValue, TensorValue, TensorValue]:
    value, place = as_tensor(input), as_tensor(indices)
    update = weak_constant(updates, value) if is_weak(updates) else as_tensor(updates)
    check_indices(op, place)
    if update.dtype is not value.dtype:
        raise op_fault(op, {"input": value, "updates": update}, "updates must have the dtype of input; cast them")
    return value, update, place


def _write(onnx_op: str, op: str, inputs: list[TensorValue], **attributes: Attribute) -> TensorValue:
    value, place, update = inputs
    reduction = op.rpartition("_")[2]
    if reduction not in ("add", "mul", "max", "min"):
        return emit(onnx_op, inputs, value.type, **attributes)
    check_numbers(op, value)
    # The runtime loads both operators in every dtype, and some fail only when they run.
    working = kernel_dtype("ScatterReduction", value)
    ready = [cast_to(value, working), place, cast_to(update, working)]
    result = emit(onnx_op, ready, value.type.cast(working), reduction=reduction, **attributes)
    return cast_to(result, value.dtype)
