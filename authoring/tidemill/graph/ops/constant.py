"""Values that are known at trace time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tidemill.dtype import DType
from tidemill.graph.context import current
from tidemill.graph.type import DeviceRef, TensorType

if TYPE_CHECKING:
    from tidemill.graph.value import TensorValue

__all__ = ["constant", "constant_external"]


def constant(value: Any, dtype: DType | None = None, device: DeviceRef | None = None) -> TensorValue:
    """A constant of the graph.

    Args:
        value: A number, nested lists of numbers, a numpy array, or anything with `__array__`.
        dtype: The element type; needed for plain numbers and lists, taken from the array otherwise. Floating point
            numbers are rounded to it.
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
    return current().constant(_converted(data, wanted), device)


def constant_external(
    name: str, type: TensorType, align: int | None = None, is_placeholder: bool = False
) -> TensorValue:
    """A weight by its full name, without a module that owns it; equal names are one weight.

    Args:
        name: Its full name, as in the checkpoint.
        type: Its dtype, shape and device.
        align: Not used: the alignment of a weight is that of its dtype.
        is_placeholder: Whether a call of this subgraph puts its prefix before the name.

    Raises:
        ValueError: A weight of that name has another type.
    """
    del align
    return current().named_weight(name, type, is_placeholder)


def _converted(data: np.ndarray[Any, Any], dtype: DType) -> np.ndarray[Any, Any]:
    if dtype.is_integral():
        _check_integers(data, dtype)
    if dtype is DType.bool and not np.isin(data, (0, 1)).all():
        raise ValueError(f"constant {data} is more than true and false; compare it with 0 for DType.bool")
    with np.errstate(over="ignore"):
        converted = data.astype(dtype.to_numpy())
    if dtype.is_float() and not np.array_equal(np.isfinite(data), np.isfinite(converted)):
        raise ValueError(f"constant in [{data.min()}, {data.max()}] does not fit {dtype!r}")
    return converted


def _check_integers(data: np.ndarray[Any, Any], dtype: DType) -> None:
    info: np.iinfo[Any] = np.iinfo(dtype.name)
    if data.dtype.kind == "f" and not np.array_equal(data, np.trunc(data)):
        raise ValueError(f"constant {data} is not whole and can't be a {dtype!r}; cast it in the graph instead")
    if data.size and (data.min() < info.min or data.max() > info.max):
        raise ValueError(f"constant in [{data.min()}, {data.max()}] does not fit {dtype!r} [{info.min}, {info.max}]")
