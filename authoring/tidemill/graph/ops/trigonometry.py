"""Trigonometric and hyperbolic functions; ONNX Runtime computes most of them in float16 and float32 only."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidemill.dtype import DType
from tidemill.graph.context import as_tensor
from tidemill.graph.ops.elementwise import div, on_floats
from tidemill.graph.ops.promote import TensorLike

if TYPE_CHECKING:
    from tidemill.graph.value import TensorValue

__all__ = ["acos", "acosh", "asin", "asinh", "atan", "atanh", "cos", "cosh", "sin", "sinh", "tan"]


def sin(x: TensorLike) -> TensorValue:
    """The sine; x in radians."""
    return on_floats("Sin", x)


def cos(x: TensorLike) -> TensorValue:
    """The cosine; x in radians."""
    return on_floats("Cos", x)


def tan(x: TensorLike) -> TensorValue:
    """The tangent; x in radians."""
    value = as_tensor(x)
    return div(sin(value), cos(value)) if value.dtype is DType.float64 else on_floats("Tan", value)


def asin(x: TensorLike) -> TensorValue:
    """The arc sine, in radians; float64 is refused."""
    return on_floats("Asin", x)


def acos(x: TensorLike) -> TensorValue:
    """The arc cosine, in radians; float64 is refused."""
    return on_floats("Acos", x)


def atan(x: TensorLike) -> TensorValue:
    """The arc tangent, in radians; float64 is refused."""
    return on_floats("Atan", x)


def sinh(x: TensorLike) -> TensorValue:
    """The hyperbolic sine; float64 is refused."""
    return on_floats("Sinh", x)


def cosh(x: TensorLike) -> TensorValue:
    """The hyperbolic cosine; float64 is refused."""
    return on_floats("Cosh", x)


def asinh(x: TensorLike) -> TensorValue:
    """The inverse hyperbolic sine; float64 is refused."""
    return on_floats("Asinh", x)


def acosh(x: TensorLike) -> TensorValue:
    """The inverse hyperbolic cosine; float64 is refused."""
    return on_floats("Acosh", x)


def atanh(x: TensorLike) -> TensorValue:
    """The inverse hyperbolic tangent; float64 is refused."""
    return on_floats("Atanh", x)
