"""Powers: floats by the runtime, integers exactly."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tidemill.dtype import DType
from tidemill.graph.context import as_tensor, current, emit
from tidemill.graph.fault import op_fault
from tidemill.graph.ops.division import floor_div, mod
from tidemill.graph.ops.elementwise import equal, greater, mul, numbers, where
from tidemill.graph.ops.promote import TensorLike, broadcast_shape, cast_to, is_weak

if TYPE_CHECKING:
    from tidemill.graph.value import TensorValue

__all__ = ["pow"]

_EXPONENT_BITS = 6
_EXPONENTS = 2**_EXPONENT_BITS


def pow(lhs: TensorLike, rhs: TensorLike) -> TensorValue:
    """`lhs` to the power of `rhs`, in the promoted dtype; integers wrap around, as in numpy.

    Integers are multiplied out, because ONNX Runtime computes their power in floating point. Their exponents lie in
    [0, 63]: another one fails the run, or this call if it is known.
    """
    left, right = numbers("pow", lhs, rhs)
    if left.dtype.is_float():
        return emit("Pow", [left, right], left.type.with_shape(broadcast_shape("pow", left, right)))
    if is_weak(rhs) and np.ndim(rhs) == 0:
        return _fixed_power(left, int(rhs))
    return _power(left, right)


def _fixed_power(base: TensorValue, exponent: int) -> TensorValue:
    if not 0 <= exponent < _EXPONENTS:
        raise op_fault(
            "pow", {"lhs": base}, f"integers to the power of {exponent}: only 0 to 63; cast to a float first"
        )
    result: TensorValue | None = None
    while exponent:
        if exponent % 2:
            result = base if result is None else mul(result, base)
        exponent //= 2
        base = mul(base, base) if exponent else base
    return result if result is not None else where(equal(base, base), current().constant(_one(base)), base)


def _power(base: TensorValue, exponent: TensorValue) -> TensorValue:
    """Square and multiply, one bit of the exponent after the other."""
    bits = _checked(exponent)
    result = as_tensor(current().constant(_one(base)))
    for bit in range(_EXPONENT_BITS):
        result = mul(result, where(equal(mod(bits, 2), 1), base, 1))
        if bit < _EXPONENT_BITS - 1:
            bits, base = floor_div(bits, 2), mul(base, base)
    return result


def _checked(exponent: TensorValue) -> TensorValue:
    """The exponent as int64; looking it up in a table fails the run where it is not in [0, 63]."""
    wide = cast_to(exponent, DType.int64)
    places = wide if exponent.dtype.is_unsigned_integral() else where(greater(0, wide), _EXPONENTS, wide)
    table = current().constant(np.arange(_EXPONENTS, dtype=np.int64))
    return emit("Gather", [table, places], wide.type, axis=0)


def _one(value: TensorValue) -> np.ndarray[tuple[()], np.dtype[np.generic]]:
    return np.ones((), value.dtype.to_numpy())
