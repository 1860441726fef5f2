"""Normalisations over the last axis."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidemill.dtype import DType
from tidemill.graph.context import as_tensor, emit
from tidemill.graph.fault import op_fault
from tidemill.graph.ops.elementwise import add, mul, rsqrt
from tidemill.graph.ops.promote import TensorLike, cast_to
from tidemill.graph.ops.reduction import mean

if TYPE_CHECKING:
    from tidemill.graph.value import TensorValue

__all__ = ["layer_norm", "rms_norm"]


def layer_norm(input: TensorLike, gamma: TensorLike, beta: TensorLike | None, epsilon: float) -> TensorValue:
    """(x - mean) / sqrt(variance + epsilon) * gamma + beta over the last axis (Ba et al., 2016).

    Args:
        input: [..., size], floating point; float16 is normalised in float32.
        gamma: [size], the scale.
        beta: [size], the shift, or None.
        epsilon: Added to the variance.
    """
    value, inputs = as_tensor(input), [as_tensor(one) for one in (gamma, beta) if one is not None]
    for one in inputs:
        _check_scale("layer_norm", value, one)
    return emit("LayerNormalization", [value, *inputs], value.type, axis=-1, epsilon=float(epsilon))


def rms_norm(
    input: TensorLike,
    weight: TensorLike,
    epsilon: float,
    weight_offset: float = 0.0,
    multiply_before_cast: bool = False,
) -> TensorValue:
    """x / sqrt(mean(x^2) + epsilon) * (weight + weight_offset) over the last axis (Zhang and Sennrich, 2019).

    Args:
        input: [..., size], floating point; float16 and bfloat16 are normalised in float32.
        weight: [size], the scale.
        epsilon: Added to the mean square.
        weight_offset: Added to the weight.
        multiply_before_cast: Whether to scale in float32 too, and round once.
    """
    value, scale = as_tensor(input), as_tensor(weight)
    _check_scale("rms_norm", value, scale)
    if value.dtype is DType.float64:
        normal = mul(value, rsqrt(add(mean(mul(value, value)), epsilon)))
        return mul(normal, add(scale, weight_offset) if weight_offset else scale)
    working = DType.float32 if multiply_before_cast else value.dtype
    ready, factor = cast_to(value, working), cast_to(scale, working)
    factor = add(factor, weight_offset) if weight_offset else factor
    return cast_to(emit("RMSNormalization", [ready, factor], ready.type, axis=-1, epsilon=float(epsilon)), value.dtype)


def _check_scale(op: str, value: TensorValue, scale: TensorValue) -> None:
    fits = value.rank and scale.rank == 1 and scale.shape[0] == value.shape[-1]
    if not fits or scale.dtype is not value.dtype or not value.dtype.is_float():
        raise op_fault(
            op, {"input": value, "scale": scale}, "scale and shift must be [input.shape[-1]] of the input's float dtype"
        )
