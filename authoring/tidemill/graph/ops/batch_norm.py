"""Normalisation by statistics that were gathered in training."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidemill.graph.context import as_tensor, emit
from tidemill.graph.fault import op_fault
from tidemill.graph.ops.promote import TensorLike

if TYPE_CHECKING:
    from tidemill.graph.value import TensorValue

__all__ = ["batch_norm"]


def batch_norm(
    x: TensorLike,
    statistics: tuple[TensorLike, TensorLike],
    affine: tuple[TensorLike, TensorLike],
    epsilon: float = 1e-5,
) -> TensorValue:
    """(x - mean) / sqrt(variance + epsilon) * scale + shift, channel by channel (Ioffe and Szegedy, 2015).

    Args:
        x: [batch, channels, ...], floating point.
        statistics: The mean and the variance [channels], of the dtype of `x`.
        affine: The scale and the shift [channels], of the dtype of `x`.
        epsilon: Added to the variance.
    """
    value = as_tensor(x)
    mean, variance, scale, shift = (as_tensor(one) for one in (*statistics, *affine))
    parameters = [scale, shift, mean, variance]
    fits = value.rank >= 2 and value.dtype.is_float()
    if not fits or any(one.dtype is not value.dtype or one.shape != value.shape[1:2] for one in parameters):
        given = {"x": value, "mean": mean, "variance": variance, "scale": scale, "shift": shift}
        text = "x must be [batch, channels, ...], floating point, and all others [channels] of its dtype"
        raise op_fault("batch_norm", given, text)
    return emit("BatchNormalization", [value, *parameters], value.type, epsilon=float(epsilon))
