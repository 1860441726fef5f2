"""Operators that fold an axis; the axis stays, with size 1."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tidemill.dtype import DType
from tidemill.graph.context import as_tensor, current, emit
from tidemill.graph.dim import StaticDim
from tidemill.graph.fault import op_fault
from tidemill.graph.ops.axes import resolve_axis
from tidemill.graph.ops.elementwise import add, div, maximum, minimum, mul, sub
from tidemill.graph.ops.kernels import compute
from tidemill.graph.ops.promote import TensorLike, cast_to, check_numbers
from tidemill.graph.ops.shaping import broadcast_to
from tidemill.graph.shape import Shape
from tidemill.graph.type import TensorType

if TYPE_CHECKING:
    from tidemill.graph.value import TensorValue

__all__ = ["argmax", "argmin", "logsumexp", "max", "mean", "min", "prod", "sum"]


def sum(x: TensorLike, axis: int = -1) -> TensorValue:
    """The sum along `axis`, in the dtype of `x`; 0 over no elements. Integers wrap around."""
    value = as_tensor(x)
    return _gathered_up("add", 0, value, axis) if value.dtype.is_integral() else _fold("ReduceSum", value, axis)


def mean(x: TensorLike, axis: int = -1) -> TensorValue:
    """The arithmetic mean along `axis`, in the dtype of `x`; NaN over no elements.

    That of integers is computed in float64, truncated, and 0 over no elements.
    """
    value = as_tensor(x)
    index = resolve_axis("mean", value, axis)
    folded = _fold("ReduceMean", value, index)
    dim = value.shape[index]
    if (isinstance(dim, StaticDim) and dim.dim) or not value.dtype.is_float():
        return folded
    # ONNX Runtime's mean over nothing is 0, silently; 0 / size is 0 for every other size.
    size = cast_to(current().extents([dim]), value.dtype)
    return add(folded, div(0.0, size))


def prod(x: TensorLike, axis: int = -1) -> TensorValue:
    """The product along `axis`, in the dtype of `x`; 1 over no elements. Integers wrap around."""
    value = as_tensor(x)
    return _gathered_up("mul", 1, value, axis) if value.dtype.is_integral() else _fold("ReduceProd", value, axis)


def logsumexp(x: TensorLike, axis: int = -1) -> TensorValue:
    """The logarithm of the sum of exp(x) along `axis`, computed without overflow; -inf over no elements."""
    value = as_tensor(x)
    if not value.dtype.is_float():
        raise op_fault("logsumexp", {"x": value}, f"takes floating point numbers, not {value.dtype!r}; cast it first")
    return _fold("ReduceLogSumExp", value, axis)


def min(x: TensorLike, y: TensorLike | None = None, /, axis: int | None = None) -> TensorValue:
    """The smaller of `x` and `y`, or the smallest element of `x` along `axis`, the last by default.

    Over no elements it fails, as in numpy. Which of NaN and a number wins along an axis is not defined; of two
    tensors NaN does.
    """
    if y is not None:
        _refuse_axis("min", axis)
        return minimum(x, y)
    return _extreme("ReduceMin", "min", x, axis)


def max(x: TensorLike, y: TensorLike | None = None, /, axis: int | None = None) -> TensorValue:
    """The larger of `x` and `y`, or the largest element of `x` along `axis`, the last by default.

    Over no elements it fails, as in numpy. Which of NaN and a number wins along an axis is not defined; of two
    tensors NaN does.
    """
    if y is not None:
        _refuse_axis("max", axis)
        return maximum(x, y)
    return _extreme("ReduceMax", "max", x, axis)


def argmax(x: TensorLike, axis: int = -1) -> TensorValue:
    """The index of the first largest element along `axis`, as int64; among NaNs it is not defined."""
    return _index("ArgMax", "argmax", x, axis)


def argmin(x: TensorLike, axis: int = -1) -> TensorValue:
    """The index of the first smallest element along `axis`, as int64; among NaNs it is not defined."""
    return _index("ArgMin", "argmin", x, axis)


def _fold(op: str, x: TensorLike, axis: int) -> TensorValue:
    value = as_tensor(x)
    check_numbers(op, value)
    index = resolve_axis(op, value, axis)
    axes = current().constant(np.array([index], np.int64))
    return compute(op, [value, axes], value.type.with_shape(_kept(value, index)), of=value, keepdims=1)


def _gathered_up(reduction: str, neutral: int, value: TensorValue, axis: int) -> TensorValue:
    """The exact sum or product of integers: everything is scattered to place 0 of `axis`.

    ONNX Runtime computes ReduceSum and ReduceProd of integers in floating point.
    """
    index = resolve_axis(reduction, value, axis)
    kept = _kept(value, index)
    start = broadcast_to(current().constant(np.array(neutral, value.dtype.to_numpy())), kept)
    place = broadcast_to(current().constant(np.array(0, np.int64)), value.shape)
    return emit("ScatterElements", [start, place, value], value.type.with_shape(kept), axis=index, reduction=reduction)


def _extreme(op: str, name: str, x: TensorLike, axis: int | None) -> TensorValue:
    value = as_tensor(x)
    index = resolve_axis(name, value, -1 if axis is None else axis)
    _refuse_empty(name, value, index)
    folded = _fold(op, value, index)
    return folded if isinstance(value.shape[index], StaticDim) else _failing_if_empty(folded, value, index)


def _index(op: str, name: str, x: TensorLike, axis: int) -> TensorValue:
    value = as_tensor(x)
    check_numbers(name, value)
    index = resolve_axis(name, value, axis)
    _refuse_empty(name, value, index)
    type = value.type.with_shape(_kept(value, index)).cast(DType.int64)
    return compute(op, [value], type, axis=index, keepdims=1)


def _failing_if_empty(folded: TensorValue, value: TensorValue, axis: int) -> TensorValue:
    """`folded`, reshaped to what it is; to a size of -2, which fails the run, where `axis` of `value` has no elements.

    ONNX Runtime would give the dtype's limits there.
    """
    one = minimum(current().extents([value.shape[axis]]), 1)
    size = sub(mul(one, 3), 2)
    # To a Reshape 0 means: as it was.
    kept = current().constant(np.zeros(value.rank, np.int64))
    place = current().constant(np.array([axis], np.int64))
    shape = emit("ScatterElements", [kept, place, size], TensorType(DType.int64, [value.rank]), axis=0)
    return emit("Reshape", [folded, shape], folded.type)


def _refuse_axis(name: str, axis: int | None) -> None:
    if axis is not None:
        raise ValueError(f"Axis not allowed for elementwise {name}.")


def _refuse_empty(name: str, value: TensorValue, axis: int) -> None:
    if value.shape[axis] == 0:
        raise op_fault(name, {"x": value}, f"axis {axis} has no elements, and {name} over nothing is not defined")


def _kept(value: TensorValue, axis: int) -> Shape:
    return Shape(1 if index == axis else dim for index, dim in enumerate(value.shape))
