"""Numbers at equal distances."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from tidemill.dtype import DType
from tidemill.graph.context import current, emit
from tidemill.graph.dim import Dim, DimLike, StaticDim
from tidemill.graph.fault import op_fault
from tidemill.graph.ops.promote import TensorLike, cast_to
from tidemill.graph.ops.sizing import sized
from tidemill.graph.type import DeviceRef, TensorType

if TYPE_CHECKING:
    from tidemill.graph.value import TensorValue

__all__ = ["positions", "range"]

Bound: TypeAlias = DimLike | float | TensorLike
"""A number, a size (a symbol or arithmetic over symbols), or a scalar tensor."""


def range(
    start: Bound,
    stop: Bound,
    step: Bound = 1,
    out_dim: DimLike | None = None,
    *,
    dtype: DType = DType.int64,
    device: DeviceRef | None = None,
) -> TensorValue:
    """The numbers from `start` on, in steps of `step`, that lie before `stop`: `range(0, x.shape[1])`.

    Args:
        start: The first number: a number, a size, a symbol, or a scalar tensor.
        stop: Where to end; not included.
        step: How far apart; not zero.
        out_dim: The name of the result's size. It is needed for scalar tensors and derived otherwise.
        dtype: The element type; any number type but 8-bit floats.
        device: Where it lives.

    Raises:
        ValueError: The step is 0, or the size is neither known nor named.
    """
    bounds = [start, stop, step]
    size = Dim(out_dim) if out_dim is not None else _count(bounds)
    working = DType.float64 if dtype.is_float() else DType.int64
    scalars = [_scalar(bound, working) for bound in bounds]
    numbers = emit("Range", scalars, TensorType(working, [size], device))
    return cast_to(numbers if out_dim is None else sized(numbers, 0), dtype)


def positions(dim: Dim) -> TensorValue:
    """0, 1, ... up to a size, int64 [dim]."""
    return range(0, dim)


def _count(bounds: list[Any]) -> Dim:
    if any(hasattr(bound, "__tensorvalue__") for bound in bounds):
        raise ValueError("range: the size of a range between tensors is not known while tracing; name it with out_dim=")
    start, stop, step = bounds
    if any(isinstance(bound, float) for bound in bounds):
        if not step:
            raise ValueError("range: step must not be 0")
        return Dim(max(0, math.ceil((stop - start) / step)))
    first, last, by = Dim(start), Dim(stop), int(Dim(step))
    if not by:
        raise ValueError("range: step must not be 0")
    size = (last - first + (by - 1 if by > 0 else by + 1)) // by
    return Dim(max(0, size.dim)) if isinstance(size, StaticDim) else size


def _scalar(bound: Any, dtype: DType) -> TensorValue:
    """`bound` as a rank-0 tensor of `dtype`."""
    if hasattr(bound, "__tensorvalue__"):
        value: TensorValue = bound.__tensorvalue__()
        if value.rank:
            raise op_fault("range", {"bound": value}, "takes scalars; reshape it to []")
        return cast_to(value, dtype)
    if isinstance(bound, float):
        return current().constant(np.array(bound, dtype.to_numpy()))
    dim = Dim(bound)
    if isinstance(dim, StaticDim):
        return current().constant(np.array(dim.dim, dtype.to_numpy()))
    axes = current().constant(np.array([0], np.int64))
    return cast_to(emit("Squeeze", [current().extents([dim]), axes], TensorType(DType.int64, [])), dtype)
