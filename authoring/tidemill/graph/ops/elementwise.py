"""Arithmetic, comparison and logic on each element by itself, with numpy's broadcasting."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidemill.dtype import DType
from tidemill.graph.context import as_tensor, emit
from tidemill.graph.fault import op_fault
from tidemill.graph.ops.kernels import compute
from tidemill.graph.ops.promote import TensorLike, broadcast_shape, cast_to, check_numbers, operands
from tidemill.graph.type import TensorType

if TYPE_CHECKING:
    from tidemill.graph.value import TensorValue

__all__ = [
    "abs",
    "add",
    "cast",
    "ceil",
    "clip",
    "div",
    "equal",
    "erf",
    "exp",
    "floor",
    "greater",
    "greater_equal",
    "is_inf",
    "is_nan",
    "less",
    "less_equal",
    "log",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "maximum",
    "minimum",
    "mul",
    "negate",
    "not_equal",
    "numbers",
    "on_floats",
    "reciprocal",
    "round",
    "rsqrt",
    "sign",
    "sqrt",
    "sub",
    "tanh",
    "trunc",
    "where",
]


def add(lhs: TensorLike, rhs: TensorLike) -> TensorValue:
    """The sum; for bools their logical or. Integers wrap around, as in numpy."""
    left, right = operands("add", lhs, rhs)
    return _binary("Or" if left.dtype is DType.bool else "Add", left, right)


def sub(lhs: TensorLike, rhs: TensorLike) -> TensorValue:
    """The difference. Integers wrap around, as in numpy."""
    return _binary("Sub", *numbers("sub", lhs, rhs))


def mul(lhs: TensorLike, rhs: TensorLike) -> TensorValue:
    """The product; for bools their logical and. Integers wrap around, as in numpy."""
    left, right = operands("mul", lhs, rhs)
    return _binary("And" if left.dtype is DType.bool else "Mul", left, right)


def div(lhs: TensorLike, rhs: TensorLike) -> TensorValue:
    """The true quotient; of integers and bools it is float64."""
    left, right = operands("div", lhs, rhs)
    if left.dtype.is_integral() or left.dtype is DType.bool:
        left, right = cast_to(left, DType.float64), cast_to(right, DType.float64)
    return _binary("Div", left, right)


def minimum(lhs: TensorLike, rhs: TensorLike) -> TensorValue:
    """The smaller of two; NaN where either is NaN."""
    return _binary("Min", *numbers("min", lhs, rhs))


def maximum(lhs: TensorLike, rhs: TensorLike) -> TensorValue:
    """The larger of two; NaN where either is NaN."""
    return _binary("Max", *numbers("max", lhs, rhs))


def clip(x: TensorLike, low: TensorLike | None = None, high: TensorLike | None = None) -> TensorValue:
    """`x` kept within [low, high]; `high` where the bounds cross, NaN stays NaN.

    Args:
        x: Numbers.
        low: The least value, broadcast; None for no bound.
        high: The largest value, broadcast; None for no bound.
    """
    value = as_tensor(x)
    raised = value if low is None else maximum(value, low)
    return raised if high is None else minimum(raised, high)


def equal(lhs: TensorLike, rhs: TensorLike) -> TensorValue:
    """Whether elements are equal, as bool."""
    return _compare("Equal", *operands("equal", lhs, rhs))


def not_equal(lhs: TensorLike, rhs: TensorLike) -> TensorValue:
    """Whether elements differ, as bool."""
    return logical_not(equal(lhs, rhs))


def greater(lhs: TensorLike, rhs: TensorLike) -> TensorValue:
    """Whether `lhs > rhs`, as bool."""
    return _compare("Greater", *numbers("greater", lhs, rhs))


def greater_equal(lhs: TensorLike, rhs: TensorLike) -> TensorValue:
    """Whether `lhs >= rhs`, as bool."""
    return _compare("GreaterOrEqual", *numbers("greater_equal", lhs, rhs))


def less(lhs: TensorLike, rhs: TensorLike) -> TensorValue:
    """Whether `lhs < rhs`, as bool."""
    return greater(rhs, lhs)


def less_equal(lhs: TensorLike, rhs: TensorLike) -> TensorValue:
    """Whether `lhs <= rhs`, as bool."""
    return greater_equal(rhs, lhs)


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
    if chosen.dtype is DType.bool:
        return logical_or(logical_and(test, chosen), logical_and(logical_not(test), other))
    type = chosen.type.with_shape(broadcast_shape("where", test, chosen, other))
    return compute("Where", [test, chosen, other], type, of=chosen)


def cast(x: TensorLike, dtype: DType) -> TensorValue:
    """`x` in another dtype; floats are cut towards zero when they become integers."""
    return cast_to(as_tensor(x), dtype)


def abs(x: TensorLike) -> TensorValue:
    """The magnitude; the smallest integer stays as it is, as in numpy."""
    return _on_numbers("Abs", x)


def negate(x: TensorLike) -> TensorValue:
    """The number with its sign turned. Integers wrap around, as in numpy."""
    value = as_tensor(x)
    return sub(0, value) if value.dtype.is_unsigned_integral() else _on_numbers("Neg", value)


def sign(x: TensorLike) -> TensorValue:
    """-1, 0 or 1."""
    return _on_numbers("Sign", x)


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
    return where(greater(0, value), ceil(value), floor(value))


def sqrt(x: TensorLike) -> TensorValue:
    """The square root; NaN for negative numbers."""
    return on_floats("Sqrt", x)


def rsqrt(x: TensorLike) -> TensorValue:
    """One over the square root."""
    return reciprocal(sqrt(x))


def reciprocal(x: TensorLike) -> TensorValue:
    """One over x."""
    return on_floats("Reciprocal", x)


def exp(x: TensorLike) -> TensorValue:
    """e to the power of x."""
    return on_floats("Exp", x)


def log(x: TensorLike) -> TensorValue:
    """The natural logarithm."""
    return on_floats("Log", x)


def erf(x: TensorLike) -> TensorValue:
    """The error function; float64 is refused."""
    return on_floats("Erf", x)


def tanh(x: TensorLike) -> TensorValue:
    """The hyperbolic tangent."""
    return on_floats("Tanh", x)


def is_nan(x: TensorLike) -> TensorValue:
    """Whether elements are NaN, as bool."""
    return on_floats("IsNaN", x, DType.bool)


def is_inf(x: TensorLike) -> TensorValue:
    """Whether elements are infinite, of either sign, as bool."""
    return on_floats("IsInf", x, DType.bool)


def numbers(op: str, lhs: TensorLike, rhs: TensorLike) -> tuple[TensorValue, TensorValue]:
    """Both operands as numbers of one dtype; ValueError for bool and for dtypes that nothing computes with."""
    left, right = operands(op, lhs, rhs)
    check_numbers(op, left)
    return left, right


def on_floats(op: str, x: TensorLike, dtype: DType | None = None) -> TensorValue:
    """Append `op`, which takes one floating point tensor; `dtype` is that of the result, the input's by default."""
    value = as_tensor(x)
    if not value.dtype.is_float():
        raise op_fault(op.lower(), {"x": value}, f"takes floating point numbers, not {value.dtype!r}; cast it first")
    check_numbers(op.lower(), value)
    return compute(op, [value], value.type if dtype is None else value.type.cast(dtype))


def _binary(op: str, lhs: TensorValue, rhs: TensorValue) -> TensorValue:
    if lhs.dtype is not DType.bool:
        check_numbers(op.lower(), lhs)
    return compute(op, [lhs, rhs], lhs.type.with_shape(broadcast_shape(op, lhs, rhs)))


def _compare(op: str, lhs: TensorValue, rhs: TensorValue) -> TensorValue:
    shape = broadcast_shape(op, lhs, rhs)
    return emit(op, [lhs, rhs], TensorType(DType.bool, shape, lhs.device))


def _bools(op: str, lhs: TensorLike, rhs: TensorLike) -> tuple[TensorValue, TensorValue]:
    left, right = operands(op, lhs, rhs)
    if left.dtype is not DType.bool:
        raise op_fault(op, {"lhs": left, "rhs": right}, f"takes bool, not {left.dtype!r}; compare first")
    return left, right


def _on_numbers(op: str, x: TensorLike) -> TensorValue:
    value = as_tensor(x)
    check_numbers(op.lower(), value)
    return compute(op, [value], value.type)


def _rounding(op: str, x: TensorLike) -> TensorValue:
    value = as_tensor(x)
    return value if value.dtype.is_integral() else on_floats(op, value)
