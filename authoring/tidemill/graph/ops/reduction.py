"""Operators that fold an axis; the axis stays, with size 1."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tidemill.dtype import DType
from tidemill.graph.context import as_tensor, current, emit
from tidemill.graph.fault import op_fault
from tidemill.graph.ops.axes import resolve_axis
from tidemill.graph.ops.elementwise import maximum, minimum
from tidemill.graph.ops.promote import TensorLike
from tidemill.graph.shape import Shape

if TYPE_CHECKING:
    from tidemill.graph.value import TensorValue

__all__ = ["argmax", "argmin", "max", "mean", "min", "prod", "sum"]


def sum(x: TensorLike, axis: int = -1) -> TensorValue:
    """The sum along `axis`; 0 over no elements."""
    return _fold("ReduceSum", x, axis)


def mean(x: TensorLike, axis: int = -1) -> TensorValue:
    """The arithmetic mean along `axis`."""
    return _fold("ReduceMean", x, axis)


def prod(x: TensorLike, axis: int = -1) -> TensorValue:
    """The product along `axis`; 1 over no elements."""
    return _fold("ReduceProd", x, axis)


def min(x: TensorLike, y: TensorLike | None = None, /, axis: int = -1) -> TensorValue:
    """The smaller of `x` and `y`, or the smallest element of `x` along `axis`."""
    return _fold("ReduceMin", x, axis) if y is None else minimum(x, y)


def max(x: TensorLike, y: TensorLike | None = None, /, axis: int = -1) -> TensorValue:
    """The larger of `x` and `y`, or the largest element of `x` along `axis`."""
    return _fold("ReduceMax", x, axis) if y is None else maximum(x, y)


def argmax(x: TensorLike, axis: int = -1) -> TensorValue:
    """The index of the first largest element along `axis`, as int64."""
    return _index("ArgMax", x, axis)


def argmin(x: TensorLike, axis: int = -1) -> TensorValue:
    """The index of the first smallest element along `axis`, as int64."""
    return _index("ArgMin", x, axis)


def _fold(op: str, x: TensorLike, axis: int) -> TensorValue:
    value = as_tensor(x)
    if value.dtype in (DType.bool, DType.string):
        raise op_fault(op, {"x": value}, f"takes numbers, not {value.dtype!r}; cast it first")
    index = resolve_axis(op, value, axis)
    axes = current().constant(np.array([index], np.int64))
    return emit(op, [value, axes], value.type.with_shape(_kept(value, index)), keepdims=1)


def _index(op: str, x: TensorLike, axis: int) -> TensorValue:
    value = as_tensor(x)
    index = resolve_axis(op, value, axis)
    type = value.type.with_shape(_kept(value, index)).cast(DType.int64)
    return emit(op, [value], type, axis=index, keepdims=1)


def _kept(value: TensorValue, axis: int) -> Shape:
    return Shape(1 if index == axis else dim for index, dim in enumerate(value.shape))
