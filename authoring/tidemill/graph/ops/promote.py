"""Which dtype and shape two operands meet in; appends nothing but the casts that this needs.

Promotion never loses a value: one operand's dtype must hold every value of the other's exactly. Python numbers and
numpy arrays are weak: they take the tensor's dtype, if their values fit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import ml_dtypes
import numpy as np

from tidemill.dtype import DType
from tidemill.graph.context import as_tensor, current, emit
from tidemill.graph.dim import Dim
from tidemill.graph.fault import op_fault
from tidemill.graph.shape import Shape

if TYPE_CHECKING:
    from tidemill.graph.value import TensorValue

__all__ = [
    "TensorLike",
    "broadcast_shape",
    "cast_to",
    "check_numbers",
    "holds",
    "is_weak",
    "operands",
    "promoted",
    "weak_constant",
]

TensorLike: TypeAlias = Any
"""A TensorValue, a Weight, a Python number or a numpy array."""


def is_weak(value: object) -> bool:
    """Whether `value` is a Python number or numpy data, which takes the dtype of what it meets."""
    return isinstance(value, (bool, int, float, np.ndarray, np.generic))


def operands(op: str, lhs: TensorLike, rhs: TensorLike) -> tuple[TensorValue, TensorValue]:
    """Both operands as graph values of one dtype.

    Raises:
        ValueError: A cast would be unsafe, or a weak operand does not fit.
        TypeError: Both are weak, or one is no operand at all.
    """
    if is_weak(lhs) and not is_weak(rhs):
        right = as_tensor(rhs)
        return weak_constant(lhs, right), right
    left = as_tensor(lhs)
    if is_weak(rhs):
        return left, weak_constant(rhs, left)
    right = as_tensor(rhs)
    dtype = promoted(op, left, right)
    return cast_to(left, dtype), cast_to(right, dtype)


def weak_constant(value: Any, like: TensorValue) -> TensorValue:
    """`value` as a constant of the dtype of `like`; ValueError if it does not fit."""
    dtype = like.dtype
    data = np.asarray(value)
    _check_weak(data, value, dtype)
    with np.errstate(over="ignore"):
        converted = data.astype(dtype.to_numpy())
    if dtype.is_float() and not np.array_equal(np.isfinite(data), np.isfinite(converted)):
        raise ValueError(f"Unsafe cast: {value} is beyond the range of dtype({dtype!r}).")
    return current().constant(converted, like.device)


def cast_to(value: TensorValue, dtype: DType) -> TensorValue:
    """`value` in `dtype`; the value itself if it already is."""
    if value.dtype is dtype:
        return value
    return emit("Cast", [value], value.type.cast(dtype), to=dtype.onnx)


def check_numbers(op: str, *values: TensorValue) -> None:
    """Refuse what nothing computes with: bool, string, and the 8-bit floats, which are there to store."""
    for value in values:
        if value.dtype in (DType.bool, DType.string) or value.dtype.name.startswith("float8"):
            raise op_fault(op, {"x": value}, f"takes numbers, not {value.dtype!r}; cast it first")


def broadcast_shape(op: str, *values: TensorValue) -> Shape:
    """The shape that operands broadcast to by numpy's rules; ValueError if they do not."""
    rank = max(value.rank for value in values)
    return Shape(_common_dim(op, values, axis, rank) for axis in range(rank))


def _common_dim(op: str, values: Sequence[TensorValue], axis: int, rank: int) -> Dim:
    chosen: TensorValue | None = None
    for value in values:
        dim = _dim_at(value, axis, rank)
        if dim == 1:
            continue
        if chosen is not None and dim != _dim_at(chosen, axis, rank):
            raise op_fault(
                op,
                {"lhs": chosen, "rhs": value},
                f"Input lhs (shape {chosen.shape}) dimension at axis {axis} (value {_dim_at(chosen, axis, rank)}) and "
                f"input rhs (shape {value.shape}) dimension at axis {axis} (value {dim}) are neither equivalent nor "
                "broadcastable. Insert an explicit rebind if these dims will be equivalent at runtime.",
            )
        chosen = value if chosen is None else chosen
    return Dim(1) if chosen is None else _dim_at(chosen, axis, rank)


def _dim_at(value: TensorValue, axis: int, rank: int) -> Dim:
    index = axis - (rank - value.rank)
    return value.shape[index] if index >= 0 else Dim(1)


def promoted(op: str, lhs: TensorValue, rhs: TensorValue) -> DType:
    """The one of two dtypes that holds all values of the other; ValueError if neither does."""
    if lhs.dtype is rhs.dtype or holds(lhs.dtype, rhs.dtype):
        return lhs.dtype
    if holds(rhs.dtype, lhs.dtype):
        return rhs.dtype
    raise op_fault(
        op,
        {"lhs": lhs, "rhs": rhs},
        f"Failed to resolve valid dtype: Unsafe cast from {rhs.dtype.name} to {lhs.dtype.name}. "
        "Insert an explicit cast op if this conversion is wanted.",
    )


def holds(wide: DType, narrow: DType) -> bool:
    """Whether every value of `narrow` is exactly a value of `wide`."""
    if DType.string in (wide, narrow) or wide is DType.bool:
        return False
    if narrow is DType.bool:
        return True
    if wide.is_integral():
        return narrow.is_integral() and _within(_int_range(narrow), _int_range(wide))
    if narrow.is_integral():
        # A float counts without gaps up to 2 to the power of its significant bits.
        limit = 2 ** (int(_finfo(wide).nmant) + 1)
        return _within(_int_range(narrow), (-limit, limit))
    small, large = _finfo(narrow), _finfo(wide)
    ranges = _within((float(small.tiny), float(small.max)), (float(large.tiny), float(large.max)))
    return bool(small.nmant <= large.nmant) and ranges


def _int_range(dtype: DType) -> tuple[int, int]:
    info: np.iinfo[Any] = np.iinfo(dtype.name)
    return info.min, info.max


def _within(inner: tuple[float, float], outer: tuple[float, float]) -> bool:
    return outer[0] <= inner[0] and inner[1] <= outer[1]


def _finfo(dtype: DType) -> Any:
    return ml_dtypes.finfo(dtype.to_numpy())  # type: ignore[no-untyped-call]


def _check_weak(data: np.ndarray[Any, Any], value: Any, dtype: DType) -> None:
    kind = "python" if isinstance(value, (bool, int, float)) else "numpy"
    given = "bool" if data.dtype.kind == "b" else "int" if data.dtype.kind in "iu" else "float"
    if dtype is DType.string or data.dtype.kind not in "biuf":
        raise TypeError(f"Can't combine {kind} {type(value).__name__} with a tensor of {dtype!r}.")
    if (given == "float" and not dtype.is_float()) or (given == "int" and dtype is DType.bool):
        raise ValueError(f"Unsafe cast: Can't promote {kind} {given} to dtype({dtype!r}).")
    if given == "int" and data.size and not _fits(data, dtype):
        raise ValueError(
            f"Unsafe cast: Can't promote {kind} int with value ({value}) to dtype({dtype!r}). It would lose precision."
        )


def _fits(data: np.ndarray[Any, Any], dtype: DType) -> bool:
    low, high = int(data.min()), int(data.max())
    if dtype.is_integral():
        least, most = _int_range(dtype)
        return least <= low and high <= most
    with np.errstate(over="ignore"):
        return bool(np.all(data.astype(dtype.to_numpy()).astype(object) == data.astype(object)))
