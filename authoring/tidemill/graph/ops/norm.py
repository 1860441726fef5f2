"""Normalisations."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidemill.graph.context import as_tensor, emit
from tidemill.graph.fault import op_fault
from tidemill.graph.ops.elementwise import add, mul, rsqrt
from tidemill.graph.ops.promote import TensorLike
from tidemill.graph.ops.reduction import mean

if TYPE_CHECKING:
    from tidemill.graph.value import TensorValue

__all__ = ["layer_norm", "rms_norm"]


def layer_norm(input: TensorLike, gamma: TensorLike, beta: TensorLike | None, epsilon: float) -> TensorValue:
    """(x - mean) / sqrt(variance + epsilon) * gamma + beta over the last axis (Ba et al., 2016).

    Args:
        input: [..., size], floating point.
        gamma: [size], the scale.
        beta: [size], the shift, or None.
        epsilon: Added to the variance.
    """
    value, scale = as_tensor(input), as_tensor(gamma)
    _check_scale("layer_norm", value, scale)
    inputs = [value, scale] if beta is None else [value, scale, as_tensor(beta)]
    return emit("LayerNormalization", inputs, value.type, axis=-1, epsilon=float(epsilon))


def rms_norm(
    input: TensorLike,
    weight: TensorLike,
    epsilon: float,
    weight_offset: float = 0.0,
) -> TensorValue:
    """x / sqrt(mean(x^2) + epsilon) * (weight + weight_offset) over the last axis (Zhang and Sennrich, 2019)."""
    value, scale = as_tensor(input), as_tensor(weight)
    _check_scale("rms_norm", value, scale)
    power = mean(mul(value, value), axis=-1)
    normal = mul(value, rsqrt(add(power, epsilon)))
    return mul(normal, add(scale, weight_offset) if weight_offset else scale)


def _check_scale(op: str, value: TensorValue, scale: TensorValue) -> None:
    if not value.rank or scale.rank != 1 or scale.shape[0] != value.shape[-1] or scale.dtype is not value.dtype:
        raise op_fault(op, {"input": value, "gamma": scale}, "the scale must be [input.shape[-1]] of the same dtype")
