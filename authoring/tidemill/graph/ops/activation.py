"""The nonlinear functions that layers are made of."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidemill.graph.context import as_tensor
from tidemill.graph.fault import op_fault
from tidemill.graph.ir import Attribute
from tidemill.graph.ops.axes import resolve_axis
from tidemill.graph.ops.elementwise import less, maximum, mul, where
from tidemill.graph.ops.kernels import compute
from tidemill.graph.ops.promote import TensorLike, check_numbers

if TYPE_CHECKING:
    from tidemill.graph.value import TensorValue

__all__ = [
    "elu",
    "gelu",
    "hard_sigmoid",
    "hard_swish",
    "leaky_relu",
    "logsoftmax",
    "mish",
    "prelu",
    "relu",
    "selu",
    "sigmoid",
    "silu",
    "softmax",
    "softplus",
    "softsign",
]


def relu(x: TensorLike) -> TensorValue:
    """max(x, 0)."""
    value = as_tensor(x)
    return _on_floats("Relu", value) if value.dtype.is_float() else maximum(value, 0)


def sigmoid(x: TensorLike) -> TensorValue:
    """1 / (1 + exp(-x))."""
    return _on_floats("Sigmoid", x)


def silu(x: TensorLike) -> TensorValue:
    """x * sigmoid(x)."""
    value = as_tensor(x)
    return mul(value, sigmoid(value))


def gelu(x: TensorLike, approximate: str = "none") -> TensorValue:
    """The Gaussian error linear unit (Hendrycks and Gimpel, 2016); float64 is refused.

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
    """exp(x) over its sum along `axis`, computed without overflow; NaN where all of them are -inf."""
    value = as_tensor(x)
    return _on_floats("Softmax", value, axis=resolve_axis("softmax", value, axis))


def logsoftmax(x: TensorLike, axis: int = -1) -> TensorValue:
    """The logarithm of softmax, computed without overflow."""
    value = as_tensor(x)
    return _on_floats("LogSoftmax", value, axis=resolve_axis("logsoftmax", value, axis))


def elu(x: TensorLike, alpha: float = 1.0) -> TensorValue:
    """x, or alpha * (exp(x) - 1) where x is negative (Clevert et al., 2015); float64 is refused."""
    return _on_floats("Elu", x, alpha=float(alpha))


def selu(x: TensorLike) -> TensorValue:
    """The self-normalising ELU (Klambauer et al., 2017); float64 is refused."""
    return _on_floats("Selu", x)


def leaky_relu(x: TensorLike, negative_slope: float = 0.01) -> TensorValue:
    """x, or negative_slope * x where x is negative; float64 is refused."""
    return _on_floats("LeakyRelu", x, alpha=float(negative_slope))


def prelu(x: TensorLike, slope: TensorLike) -> TensorValue:
    """x, or slope * x where x is negative; `slope` broadcasts, so for NCHW it is [channels, 1, 1]."""
    value = as_tensor(x)
    return where(less(value, 0), mul(value, slope), value)


def softplus(x: TensorLike) -> TensorValue:
    """log(1 + exp(x)), computed without overflow; float64 is refused."""
    return _on_floats("Softplus", x)


def softsign(x: TensorLike) -> TensorValue:
    """x / (1 + |x|); float64 is refused."""
    return _on_floats("Softsign", x)


def hard_sigmoid(x: TensorLike) -> TensorValue:
    """min(max(x / 6 + 0.5, 0), 1); float64 is refused."""
    return _on_floats("HardSigmoid", x, alpha=1 / 6, beta=0.5)


def hard_swish(x: TensorLike) -> TensorValue:
    """x * hard_sigmoid(x) (Howard et al., 2019); float64 is refused."""
    return _on_floats("HardSwish", x)


def mish(x: TensorLike) -> TensorValue:
    """x * tanh(softplus(x)) (Misra, 2019); float64 is refused."""
    return _on_floats("Mish", x)


def _on_floats(op: str, x: TensorLike, **attributes: Attribute) -> TensorValue:
    value = as_tensor(x)
    if not value.dtype.is_float():
        raise op_fault(op.lower(), {"x": value}, f"takes floating point numbers, not {value.dtype!r}; cast it first")
    check_numbers(op.lower(), value)
    return compute(op, [value], value.type, value, **attributes)
