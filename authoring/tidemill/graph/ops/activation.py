"""The nonlinear functions that layers are made of."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidemill.graph.context import as_tensor, emit
from tidemill.graph.fault import op_fault
from tidemill.graph.ops.axes import resolve_axis
from tidemill.graph.ops.elementwise import mul
from tidemill.graph.ops.promote import TensorLike

if TYPE_CHECKING:
    from tidemill.graph.value import TensorValue

__all__ = ["gelu", "logsoftmax", "relu", "sigmoid", "silu", "softmax"]


def relu(x: TensorLike) -> TensorValue:
    """max(x, 0)."""
    value = as_tensor(x)
    return emit("Relu", [value], value.type)


def sigmoid(x: TensorLike) -> TensorValue:
    """1 / (1 + exp(-x))."""
    return _on_floats("Sigmoid", x)


def silu(x: TensorLike) -> TensorValue:
    """x * sigmoid(x)."""
    value = as_tensor(x)
    return mul(value, sigmoid(value))


def gelu(x: TensorLike, approximate: str = "none") -> TensorValue:
    """The Gaussian error linear unit (Hendrycks and Gimpel, 2016).

    Args:
        x: Floating point numbers.
        approximate: "none" for x * Phi(x); "tanh" for its tanh approximation; "quick" for x * sigmoid(1.702 x).
    """
    value = as_tensor(x)
    if approximate == "quick":
        return mul(value, sigmoid(mul(value, 1.702)))
    if approximate not in ("none", "tanh"):
        raise ValueError(f"gelu: approximate is {approximate!r}, expected 'none', 'tanh' or 'quick'")
    return _on_floats("Gelu", value, approximate=approximate)


def softmax(x: TensorLike, axis: int = -1) -> TensorValue:
    """exp(x) over its sum along `axis`, computed without overflow."""
    value = as_tensor(x)
    return _on_floats("Softmax", value, axis=resolve_axis("softmax", value, axis))


def logsoftmax(x: TensorLike, axis: int = -1) -> TensorValue:
    """The logarithm of softmax, computed without overflow."""
    value = as_tensor(x)
    return _on_floats("LogSoftmax", value, axis=resolve_axis("logsoftmax", value, axis))


def _on_floats(op: str, x: TensorLike, **attributes: int | str) -> TensorValue:
    value = as_tensor(x)
    if not value.dtype.is_float():
        raise op_fault(op.lower(), {"x": value}, f"takes floating point numbers, not {value.dtype!r}; cast it first")
    return emit(op, [value], value.type, **attributes)
