"""Values that are known at trace time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tidemill.dtype import DType
from tidemill.graph.context import current, emit
from tidemill.graph.dim import Dim, DimLike, StaticDim
from tidemill.graph.ops.promote import cast_to
from tidemill.graph.type import DeviceRef, TensorType

if TYPE_CHECKING:
    from tidemill.graph.value import TensorValue

__all__ = ["constant", "range"]


def constant(value: Any, dtype: DType | None = None, device: DeviceRef | None = None) -> TensorValue:
    """A constant of the graph.

    Args:
        value: A number, nested lists of numbers, a numpy array, or anything with `__array__`.
        dtype: The element type; needed for plain numbers and lists, taken from the array otherwise.
        device: Where it lives; needed for plain numbers and lists.

    Raises:
        TypeError: A literal without dtype and device.
        ValueError: A number that the dtype cannot hold.
    """
    literal = not hasattr(value, "__array__")
    if literal and (dtype is None or device is None):
        raise TypeError("Literal constants must explicitly set a dtype and device.")
    data = np.asarray(value)
    wanted = dtype or DType.from_numpy(data.dtype)
    _check_range(data, wanted)
    return current().constant(data.astype(wanted.to_numpy()), device)


def range(
    start: DimLike,
    stop: DimLike,
    step: int = 1,
    out_dim: DimLike | None = None,
    *,
    dtype: DType = DType.int64,
    device: DeviceRef | None = None,
) -> TensorValue:
    """The whole numbers from `start` on, in steps of `step`, that lie before `stop`: `range(0, x.shape[1])`.

    Args:
        start: The first number: a size, a symbol or arithmetic over symbols.
        stop: Where to end; not included.
        step: How far apart; not zero.
        out_dim: The name of the result's size; derived by default.
        dtype: int32 or int64.
        device: Where it lives.
    """
    first, last = Dim(start), Dim(stop)
    if not step:
        raise ValueError("range: step must not be 0")
    size = Dim(out_dim) if out_dim is not None else (last - first + (step - 1 if step > 0 else step + 1)) // step
    bounds = [_scalar(first), _scalar(last), current().constant(np.array(step, np.int64), device)]
    numbers = emit("Range", bounds, TensorType(DType.int64, [size], device))
    current().define(size, numbers, 0)
    return cast_to(numbers, dtype)


def _scalar(dim: Dim) -> TensorValue:
    if isinstance(dim, StaticDim):
        return current().constant(np.array(dim.dim, np.int64))
    axes = current().constant(np.array([0], np.int64))
    return emit("Squeeze", [current().extents([dim]), axes], TensorType(DType.int64, []))


def _check_range(data: np.ndarray[Any, Any], dtype: DType) -> None:
    if not dtype.is_integral() or not data.size:
        return
    info: np.iinfo[Any] = np.iinfo(dtype.name)
    if data.dtype.kind == "f" and not np.array_equal(data, np.trunc(data)):
        raise ValueError(f"constant {data} is not whole and can't be a {dtype!r}; cast it in the graph instead")
    if data.min() < info.min or data.max() > info.max:
        raise ValueError(f"constant in [{data.min()}, {data.max()}] does not fit {dtype!r} [{info.min}, {info.max}]")
