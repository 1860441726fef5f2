"""Operators that sort, or pick the largest and smallest; equal elements keep their order, NaNs have none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidemill.dtype import DType
from tidemill.graph.context import as_tensor, current
from tidemill.graph.dim import Dim, DimLike, StaticDim
from tidemill.graph.fault import op_fault
from tidemill.graph.ops.axes import resolve_axis
from tidemill.graph.ops.kernels import kernel_dtype
from tidemill.graph.ops.promote import TensorLike, cast_to, check_numbers
from tidemill.graph.shape import Shape

if TYPE_CHECKING:
    from tidemill.graph.value import TensorValue

__all__ = ["argsort", "bottom_k", "sort", "top_k"]


def top_k(input: TensorLike, k: DimLike, axis: int = -1) -> tuple[TensorValue, TensorValue]:
    """The `k` largest elements along `axis`, the largest first.

    Args:
        input: Numbers.
        k: How many; no more than the axis has, else the run fails, or this call if the size is known.
        axis: The axis that is searched.

    Returns:
        The elements and their indices (int64), both with size `k` along `axis`.
    """
    return _ranked("top_k", as_tensor(input), Dim(k), axis, largest=True)


def bottom_k(input: TensorLike, k: DimLike, axis: int = -1) -> tuple[TensorValue, TensorValue]:
    """The `k` smallest elements along `axis`, the smallest first; otherwise as `top_k`."""
    return _ranked("bottom_k", as_tensor(input), Dim(k), axis, largest=False)


def argsort(x: TensorLike, ascending: bool = True, axis: int = -1) -> TensorValue:
    """The indices (int64) that sort `x` along `axis`; equal elements keep their order."""
    value = as_tensor(x)
    dim = value.shape[resolve_axis("argsort", value, axis)]
    return _ranked("argsort", value, dim, axis, largest=not ascending)[1]


def sort(x: TensorLike, ascending: bool = True, axis: int = -1) -> TensorValue:
    """The elements of `x` in order along `axis`."""
    value = as_tensor(x)
    dim = value.shape[resolve_axis("sort", value, axis)]
    return _ranked("sort", value, dim, axis, largest=not ascending)[0]


def _ranked(op: str, value: TensorValue, k: Dim, axis: int, *, largest: bool) -> tuple[TensorValue, TensorValue]:
    check_numbers(op, value)
    index = resolve_axis(op, value, axis)
    dim = value.shape[index]
    if isinstance(k, StaticDim) and (k.dim < 0 or (isinstance(dim, StaticDim) and k.dim > dim.dim)):
        raise op_fault(op, {"input": value}, f"k is {k}, axis {axis} has {dim} elements")
    shape = Shape(k if place == index else size for place, size in enumerate(value.shape))
    working = cast_to(value, kernel_dtype("TopK", value))
    types = [working.type.with_shape(shape), working.type.with_shape(shape).cast(DType.int64)]
    attributes = {"axis": index, "largest": int(largest), "sorted": 1}
    elements, indices = current().append("TopK", [working, current().extents([k])], types, attributes)
    return cast_to(elements, value.dtype), indices
