"""Logarithms and exponentials that stay exact where the plain formula would lose digits or overflow."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidemill.graph.context import as_tensor
from tidemill.graph.ops.elementwise import (
    abs,
    add,
    div,
    equal,
    exp,
    less,
    log,
    maximum,
    mul,
    negate,
    numbers,
    sub,
    where,
)
from tidemill.graph.ops.promote import TensorLike

if TYPE_CHECKING:
    from tidemill.graph.value import TensorValue

__all__ = ["expm1", "log1p", "logaddexp"]


def log1p(x: TensorLike) -> TensorValue:
    """The natural logarithm of 1 + x, exact for small x too."""
    value = as_tensor(x)
    rounded = add(value, 1)
    # What the addition rounded away, put back to first order; larger x need no such care.
    lost = div(sub(sub(rounded, 1), value), rounded)
    return sub(log(rounded), where(less(abs(value), 0.5), lost, 0.0))


def expm1(x: TensorLike) -> TensorValue:
    """e to the power of x, minus 1, exact for small x too."""
    value = as_tensor(x)
    power = exp(value)
    # Kahan: the rounding errors of power - 1 and of log(power) cancel out.
    small = where(equal(power, 1), value, div(mul(sub(power, 1), value), log(power)))
    return where(less(abs(value), 0.5), small, sub(power, 1))


def logaddexp(lhs: TensorLike, rhs: TensorLike) -> TensorValue:
    """log(exp(lhs) + exp(rhs)), computed without overflow."""
    left, right = numbers("logaddexp", lhs, rhs)
    # Equal infinities have no difference, but they need none.
    distance = where(equal(left, right), 0.0, abs(sub(left, right)))
    return add(maximum(left, right), log1p(exp(negate(distance))))
