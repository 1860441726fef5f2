"""Normalisations."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidemill.dtype import DType
from tidemill.graph.context import as_tensor, emit
from tidemill.graph.fault import op_fault
from tidemill.graph.ops.elementwise import add
from tidemill.graph.ops.promote import TensorLike, cast_to

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
    multiply_before_cast: bool = False,
) -> TensorValue:
    """x / sqrt(mean(x^2) + epsilon) * (weight + weight_offset) over the last axis (Zhang and Sennrich, 2019).

    The mean is taken in float32, or in float64 if that is the input's dtype.

    Args:
        input: [..., size], floating point.
        weight: [size], of the same dtype.
        epsilon: Added to the mean square.
        weight_offset: Added to the weight.
        multiply_before_cast: Whether dtypes below float32 are cast back after the product with the weight.
    """
    value, scale = as_tensor(input), as_tensor(weight)
    _check_scale("rms_norm", value, scale)
    narrow = value.dtype.size_in_bytes < 4
    wide = value if not narrow or not multiply_before_cast else cast_to(value, DType.float32)
    if weight_offset:
        scale = add(cast_to(scale, DType.float32) if narrow else scale, weight_offset)
    scale = cast_to(scale, wide.dtype)
    normal = emit("RMSNormalization", [wide, scale], wide.type, axis=-1, epsilon=float(epsilon))
    return cast_to(normal, value.dtype)


def _check_scale(op: str, value: TensorValue, scale: TensorValue) -> None:
    if not value.rank or scale.rank != 1 or scale.shape[0] != value.shape[-1] or scale.dtype is not value.dtype:
        raise op_fault(op, {"input": value, "gamma": scale}, "the scale must be [input.shape[-1]] of the same dtype")
