"""Operators that work on each element by itself, with numpy's broadcasting."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidemill.dtype import DType
from tidemill.graph.context import as_tensor, emit
from tidemill.graph.fault import op_fault
from tidemill.graph.ops.promote import TensorLike, broadcast_shape, cast_to, operands
from tidemill.graph.type import TensorType

if TYPE_CHECKING:
    from tidemill.graph.value import TensorValue

__all__ = [
    "abs",
    "acos",
    "add",
    "asin",
    "atan",
    "atanh",
    "cast",
    "ceil",
    "cos",
    "cosh",
    "div",
    "equal",
    "erf",
    "exp",
    "floor",
    "floor_div",
    "greater",
    "greater_equal",
    "is_inf",
    "is_nan",
    "log",
    "log1p",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "maximum",
    "minimum",
    "mod",
    "mul",
    "negate",
    "not_equal",
    "pow",
    "round",
    "rsqrt",
    "sin",
    "sinh",
    "sqrt",
    "sub",
    "tan",
    "tanh",
    "trunc",
    "where",
]


def add(lhs: TensorLike, rhs: TensorLike) -> TensorValue:
    """The sum; for bools their logical or."""
    left, right = operands("add", lhs, rhs)
    return _binary("Or" if left.dtype is DType.bool else "Add", left, right)


def sub(lhs: TensorLike, rhs: TensorLike) -> TensorValue:
    """The difference; unsigned integers wrap around, as in numpy."""
    return _binary("Sub", *_numbers("sub", lhs, rhs))


def mul(lhs: TensorLike, rhs: TensorLike) -> TensorValue:
    """The product; for bools their logical and."""
    left, right = operands("mul", lhs, rhs)
    return _binary("And" if left.dtype is DType.bool else "Mul", left, right)


def div(lhs: TensorLike, rhs: TensorLike) -> TensorValue:
    """The true quotient; of integers it is float64."""
    left, right = operands("div", lhs, rhs)
    if not left.dtype.is_float():
        left, right = cast_to(left, DType.float64), cast_to(right, DType.float64)
    return _binary("Div", left, right)


def floor_div(lhs: TensorLike, rhs: TensorLike) -> TensorValue:
    """The quotient rounded towards minus infinity, in the operands' dtype.

    An integer divided by zero fails the run. The smallest integer divided by -1 wraps to itself, as in numpy; the
    division itself would end the process, so it is never executed.
    """
    left, right = _numbers("floor_div", lhs, rhs)
    if left.dtype.is_float():
        return floor(_binary("Div", left, right))
    if left.dtype.is_unsigned_integral():
        return _binary("Div", left, right)
    minus_one = equal(right, -1)
    safe = where(minus_one, 1, right)
    truncated = _binary("Div", left, safe)
    remainder = sub(left, mul(truncated, safe))
    uneven = logical_and(not_equal(remainder, 0), logical_xor(_is_negative(remainder), _is_negative(safe)))
    floored = where(uneven, sub(truncated, 1), truncated)
    return where(minus_one, sub(0, left), floored)


def mod(lhs: TensorLike, rhs: TensorLike) -> TensorValue:
    """The remainder with the sign of the divisor, as in Python; `x == x // y * y + x % y`.

    An integer modulo zero fails the run.
    """
    left, right = _numbers("mod", lhs, rhs)
    if left.dtype.is_float():
        remainder = _binary("Mod", left, right, fmod=1)
        wrong_sign = logical_and(not_equal(remainder, 0), logical_xor(_is_negative(remainder), _is_negative(right)))
        return where(wrong_sign, add(remainder, right), remainder)
    if left.dtype.is_unsigned_integral():
        return _binary("Mod", left, right)
    return _binary("Mod", left, where(equal(right, -1), 1, right))


def pow(lhs: TensorLike, rhs: TensorLike) -> TensorValue:
    """`lhs` to the power of `rhs`, in the promoted dtype."""
    return _binary("Pow", *_numbers("pow", lhs, rhs))


def minimum(lhs: TensorLike, rhs: TensorLike) -> TensorValue:
    """The smaller of two; NaN where either is NaN."""
    return _binary("Min", *_numbers("min", lhs, rhs))


def maximum(lhs: TensorLike, rhs: TensorLike) -> TensorValue:
    """The larger of two; NaN where either is NaN."""
    return _binary("Max", *_numbers("max", lhs, rhs))


def equal(lhs: TensorLike, rhs: TensorLike) -> TensorValue:
    """Whether elements are equal, as bool."""
    return _compare("Equal", *operands("equal", lhs, rhs))


def not_equal(lhs: TensorLike, rhs: TensorLike) -> TensorValue:
    """Whether elements differ, as bool."""
    return logical_not(equal(lhs, rhs))


def greater(lhs: TensorLike, rhs: TensorLike) -> TensorValue:
    """Whether `lhs > rhs`, as bool."""
    return _compare("Greater", *_numbers("greater", lhs, rhs))


def greater_equal(lhs: TensorLike, rhs: TensorLike) -> TensorValue:
    """Whether `lhs >= rhs`, as bool."""
    return _compare("GreaterOrEqual", *_numbers("greater_equal", lhs, rhs))


def logical_and(lhs: TensorLike, rhs: TensorLike) -> TensorValue:
    """Whether both are true."""
    return _binary("And", *_bools("logical_and", lhs, rhs))


def logical_or(lhs: TensorLike, rhs: TensorLike) -> TensorValue:
    """Whether either is true."""
    return _binary("Or", *_bools("logical_or", lhs, rhs))


def logical_xor(lhs: TensorLike, rhs: TensorLike) -> TensorValue:
    """Whether exactly one is true."""
    return _binary("Xor", *_bools("logical_xor", lhs, rhs))


def logical_not(x: TensorLike) -> TensorValue:
    """Whether it is false."""
    value = as_tensor(x)
    if value.dtype is not DType.bool:
        raise op_fault("logical_not", {"x": value}, f"takes bool, not {value.dtype!r}")
    return emit("Not", [value], value.type)


def where(condition: TensorLike, x: TensorLike, y: TensorLike) -> TensorValue:
    """`x` where the bool `condition` holds, else `y`; all three broadcast."""
    test = as_tensor(condition)
    if test.dtype is not DType.bool:
        raise op_fault("where", {"condition": test}, f"condition must be bool, not {test.dtype!r}")
    chosen, other = operands("where", x, y)
    shape = broadcast_shape("where", test, chosen, other)
    return emit("Where", [test, chosen, other], chosen.type.with_shape(shape))


def cast(x: TensorLike, dtype: DType) -> TensorValue:
    """`x` in another dtype; floats are cut towards zero when they become integers."""
    return cast_to(as_tensor(x), dtype)


def abs(x: TensorLike) -> TensorValue:
    """The magnitude."""
    return _unary("Abs", x)


def negate(x: TensorLike) -> TensorValue:
    """The number with its sign turned; unsigned integers wrap around."""
    value = as_tensor(x)
    return sub(0, value) if value.dtype.is_unsigned_integral() else _unary("Neg", value)


def ceil(x: TensorLike) -> TensorValue:
    """The next whole number up; integers stay as they are."""
    return _rounding("Ceil", x)


def floor(x: TensorLike) -> TensorValue:
    """The next whole number down; integers stay as they are."""
    return _rounding("Floor", x)


def round(x: TensorLike) -> TensorValue:
    """The nearest whole number, halves to the even one; integers stay as they are."""
    return _rounding("Round", x)


def trunc(x: TensorLike) -> TensorValue:
    """The next whole number towards zero; integers stay as they are."""
    value = as_tensor(x)
    if value.dtype.is_integral():
        return value
    return where(_is_negative(value), ceil(value), floor(value))


def sqrt(x: TensorLike) -> TensorValue:
    """The square root; NaN for negative numbers."""
    return _float_unary("Sqrt", x)


def rsqrt(x: TensorLike) -> TensorValue:
    """One over the square root."""
    root = sqrt(x)
    return emit("Reciprocal", [root], root.type)


def exp(x: TensorLike) -> TensorValue:
    """e to the power of x."""
    return _float_unary("Exp", x)


def log(x: TensorLike) -> TensorValue:
    """The natural logarithm."""
    return _float_unary("Log", x)


def log1p(x: TensorLike) -> TensorValue:
    """The natural logarithm of 1 + x, computed as written: small x lose precision, ONNX has no such operator."""
    return log(add(as_tensor(x), 1))


def erf(x: TensorLike) -> TensorValue:
    """The error function."""
    return _float_unary("Erf", x)


def sin(x: TensorLike) -> TensorValue:
    """The sine; x in radians."""
    return _float_unary("Sin", x)


def cos(x: TensorLike) -> TensorValue:
    """The cosine; x in radians."""
    return _float_unary("Cos", x)


def tan(x: TensorLike) -> TensorValue:
    """The tangent; x in radians."""
    return _float_unary("Tan", x)


def asin(x: TensorLike) -> TensorValue:
    """The arc sine, in radians."""
    return _float_unary("Asin", x)


def acos(x: TensorLike) -> TensorValue:
    """The arc cosine, in radians."""
    return _float_unary("Acos", x)


def atan(x: TensorLike) -> TensorValue:
    """The arc tangent, in radians."""
    return _float_unary("Atan", x)


def sinh(x: TensorLike) -> TensorValue:
    """The hyperbolic sine."""
    return _float_unary("Sinh", x)


def cosh(x: TensorLike) -> TensorValue:
    """The hyperbolic cosine."""
    return _float_unary("Cosh", x)


def tanh(x: TensorLike) -> TensorValue:
    """The hyperbolic tangent."""
    return _float_unary("Tanh", x)


def atanh(x: TensorLike) -> TensorValue:
    """The inverse hyperbolic tangent."""
    return _float_unary("Atanh", x)


def is_nan(x: TensorLike) -> TensorValue:
    """Whether elements are NaN, as bool."""
    value = _floats("is_nan", x)
    return emit("IsNaN", [value], value.type.cast(DType.bool))


def is_inf(x: TensorLike) -> TensorValue:
    """Whether elements are infinite, as bool."""
    value = _floats("is_inf", x)
    return emit("IsInf", [value], value.type.cast(DType.bool))


def _binary(op: str, lhs: TensorValue, rhs: TensorValue, **attributes: int) -> TensorValue:
    shape = broadcast_shape(op, lhs, rhs)
    return emit(op, [lhs, rhs], lhs.type.with_shape(shape), **attributes)


def _compare(op: str, lhs: TensorValue, rhs: TensorValue) -> TensorValue:
    shape = broadcast_shape(op, lhs, rhs)
    return emit(op, [lhs, rhs], TensorType(DType.bool, shape, lhs.device))


def _numbers(op: str, lhs: TensorLike, rhs: TensorLike) -> tuple[TensorValue, TensorValue]:
    left, right = operands(op, lhs, rhs)
    if left.dtype in (DType.bool, DType.string):
        raise op_fault(op, {"lhs": left, "rhs": right}, f"takes numbers, not {left.dtype!r}; cast them first")
    return left, right


def _bools(op: str, lhs: TensorLike, rhs: TensorLike) -> tuple[TensorValue, TensorValue]:
    left, right = operands(op, lhs, rhs)
    if left.dtype is not DType.bool:
        raise op_fault(op, {"lhs": left, "rhs": right}, f"takes bool, not {left.dtype!r}; compare first")
    return left, right


def _floats(op: str, x: TensorLike) -> TensorValue:
    value = as_tensor(x)
    if not value.dtype.is_float():
        raise op_fault(op, {"x": value}, f"takes floating point numbers, not {value.dtype!r}; cast it first")
    return value


def _unary(op: str, x: TensorLike) -> TensorValue:
    value = as_tensor(x)
    if value.dtype in (DType.bool, DType.string):
        raise op_fault(op.lower(), {"x": value}, f"takes numbers, not {value.dtype!r}; cast it first")
    return emit(op, [value], value.type)


def _float_unary(op: str, x: TensorLike) -> TensorValue:
    value = _floats(op.lower(), x)
    return emit(op, [value], value.type)


def _rounding(op: str, x: TensorLike) -> TensorValue:
    value = as_tensor(x)
    return value if value.dtype.is_integral() else _float_unary(op, value)


def _is_negative(value: TensorValue) -> TensorValue:
    return greater(0, value)
