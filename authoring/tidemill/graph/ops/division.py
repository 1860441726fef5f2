"""Division that rounds down, and its remainder, on numbers of any dtype.

ONNX divides integers towards zero, takes remainders of floats with the sign of the dividend, and ends the process at
the smallest integer over -1; here both follow Python and numpy, and `x == x // y * y + x % y`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidemill.graph.context import emit
from tidemill.graph.ops.elementwise import (
    add,
    div,
    equal,
    greater,
    logical_and,
    logical_xor,
    mul,
    not_equal,
    numbers,
    round,
    sub,
    where,
)
from tidemill.graph.ops.promote import TensorLike, broadcast_shape

if TYPE_CHECKING:
    from tidemill.graph.value import TensorValue

__all__ = ["floor_div", "mod"]


def floor_div(lhs: TensorLike, rhs: TensorLike) -> TensorValue:
    """The quotient rounded towards minus infinity, in the operands' dtype.

    An integer divided by zero fails the run; a float gives infinity or NaN. The smallest integer divided by -1 wraps
    to itself, as in numpy; the division itself would end the process, so it is never executed.
    """
    left, right = numbers("floor_div", lhs, rhs)
    if left.dtype.is_float():
        return _floor_div_floats(left, right)
    if left.dtype.is_unsigned_integral():
        return _apply("Div", left, right)
    minus_one = equal(right, -1)
    safe = where(minus_one, 1, right)
    truncated = _apply("Div", left, safe)
    uneven = _has_other_sign(sub(left, mul(truncated, safe)), safe)
    return where(minus_one, sub(0, left), where(uneven, sub(truncated, 1), truncated))


def mod(lhs: TensorLike, rhs: TensorLike) -> TensorValue:
    """The remainder of `floor_div`, with the sign of the divisor, as in Python.

    An integer modulo zero fails the run; a float gives NaN.
    """
    left, right = numbers("mod", lhs, rhs)
    if left.dtype.is_float():
        remainder = _apply("Mod", left, right, fmod=1)
        return where(_has_other_sign(remainder, right), add(remainder, right), remainder)
    if left.dtype.is_unsigned_integral():
        return _apply("Mod", left, right)
    return _apply("Mod", left, where(equal(right, -1), 1, right))


def _floor_div_floats(left: TensorValue, right: TensorValue) -> TensorValue:
    # Through the remainder, because left / right may round up to the next whole number: 1.0 // 0.1 is 9.
    remainder = _apply("Mod", left, right, fmod=1)
    whole = round(div(sub(left, remainder), right))
    floored = where(_has_other_sign(remainder, right), sub(whole, 1), whole)
    return where(equal(right, 0), div(left, right), floored)


def _has_other_sign(remainder: TensorValue, divisor: TensorValue) -> TensorValue:
    return logical_and(not_equal(remainder, 0), logical_xor(greater(0, remainder), greater(0, divisor)))


def _apply(op: str, lhs: TensorValue, rhs: TensorValue, **attributes: int) -> TensorValue:
    return emit(op, [lhs, rhs], lhs.type.with_shape(broadcast_shape(op, lhs, rhs)), **attributes)
