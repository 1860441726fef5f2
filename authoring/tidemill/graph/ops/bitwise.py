"""Operators on the bits of integers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidemill.graph.context import as_tensor, emit
from tidemill.graph.fault import op_fault
from tidemill.graph.ops.promote import TensorLike, broadcast_shape, operands

if TYPE_CHECKING:
    from tidemill.graph.value import TensorValue

__all__ = ["bitwise_and", "bitwise_not", "bitwise_or", "bitwise_xor"]


def bitwise_and(lhs: TensorLike, rhs: TensorLike) -> TensorValue:
    """The bits that both integers have."""
    return _combine("BitwiseAnd", "bitwise_and", lhs, rhs)


def bitwise_or(lhs: TensorLike, rhs: TensorLike) -> TensorValue:
    """The bits that either integer has."""
    return _combine("BitwiseOr", "bitwise_or", lhs, rhs)


def bitwise_xor(lhs: TensorLike, rhs: TensorLike) -> TensorValue:
    """The bits that exactly one integer has."""
    return _combine("BitwiseXor", "bitwise_xor", lhs, rhs)


def bitwise_not(x: TensorLike) -> TensorValue:
    """All bits turned over."""
    value = as_tensor(x)
    _check_integers("bitwise_not", value)
    return emit("BitwiseNot", [value], value.type)


def _combine(op: str, name: str, lhs: TensorLike, rhs: TensorLike) -> TensorValue:
    left, right = operands(name, lhs, rhs)
    _check_integers(name, left)
    return emit(op, [left, right], left.type.with_shape(broadcast_shape(name, left, right)))


def _check_integers(op: str, value: TensorValue) -> None:
    if not value.dtype.is_integral():
        raise op_fault(op, {"x": value}, f"takes integers, not {value.dtype!r}; bools have logical operators")
