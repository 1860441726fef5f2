"""Normalisation layers."""

from __future__ import annotations

from collections.abc import Sequence

from tidemill.dtype import DType
from tidemill.graph import ops
from tidemill.graph.type import DeviceRef
from tidemill.graph.value import TensorValue
from tidemill.graph.weight import Weight
from tidemill.nn.layer.module import Module

__all__ = ["LayerNorm", "RMSNorm"]


class LayerNorm(Module):
    """Each vector shifted to mean 0 and scaled to variance 1, then scaled and shifted by what was learned.

    Args:
        dims: The length of a vector, the last dim of the input.
        devices: Where the weights live; the first counts.
        dtype: The element type.
        eps: Added to the variance.
        use_bias: Whether there is a shift.

    Weights: `weight` [dims], `bias` [dims].
    """

    def __init__(
        self,
        dims: int,
        devices: Sequence[DeviceRef],
        dtype: DType,
        eps: float = 1e-5,
        use_bias: bool = True,
    ) -> None:
        super().__init__()
        device = devices[0] if devices else None
        self.eps = eps
        self.weight = Weight("weight", dtype, (dims,), device)
        self.bias = Weight("bias", dtype, (dims,), device) if use_bias else None

    def __call__(self, x: TensorValue) -> TensorValue:
        """[..., dims] -> [..., dims]."""
        return ops.layer_norm(x, self.weight, self.bias, self.eps)


class RMSNorm(Module):
    """Each vector scaled to a root mean square of 1, then scaled by what was learned.

    Args:
        dim: The length of a vector, the last dim of the input.
        dtype: The element type.
        eps: Added to the mean square.
        weight_offset: Added to the learned scale.

    Weights: `weight` [dim].
    """

    def __init__(self, dim: int, dtype: DType, eps: float = 1e-6, weight_offset: float = 0.0) -> None:
        super().__init__()
        self.eps = eps
        self.weight_offset = weight_offset
        self.weight = Weight("weight", dtype, (dim,))

    def __call__(self, x: TensorValue) -> TensorValue:
        """[..., dim] -> [..., dim]."""
        return ops.rms_norm(x, self.weight, self.eps, self.weight_offset)
