"""Group normalisation."""

from __future__ import annotations

import numpy as np

from tidemill.dtype import DType
from tidemill.graph import ops
from tidemill.graph.type import DeviceRef
from tidemill.graph.value import TensorValue
from tidemill.graph.weight import Weight
from tidemill.nn.layer.module import Module

__all__ = ["GroupNorm"]


class GroupNorm(Module):
    """Each group of channels shifted to mean 0 and scaled to variance 1, then each channel as was learned.

    Args:
        num_groups: How many groups; divides the channels.
        num_channels: The number of channels.
        eps: Added to the variance.
        affine: Whether there are a learned scale and shift.
        device: Where they live.

    Weights: `weight` and `bias`, float32 [num_channels], if affine.

    Raises:
        ValueError: The groups do not divide the channels.
    """

    def __init__(
        self,
        num_groups: int,
        num_channels: int,
        eps: float = 1e-5,
        affine: bool = True,
        device: DeviceRef | None = None,
    ) -> None:
        super().__init__()
        if num_channels % num_groups:
            raise ValueError(f"num_channels({num_channels}) should be divisible by num_groups({num_groups})")
        self.num_groups = num_groups
        self.num_channels = num_channels
        self.eps = eps
        self.weight = Weight("weight", DType.float32, (num_channels,), device) if affine else None
        self.bias = Weight("bias", DType.float32, (num_channels,), device) if affine else None

    def __call__(self, x: TensorValue) -> TensorValue:
        """[batch, num_channels, ...] -> the same."""
        if x.rank < 2 or x.shape[1] != self.num_channels:
            raise ValueError(f"Expected {self.num_channels} channels on axis 1, got shape {x.shape}")
        if self.weight is None:
            scale, shift = (ops.constant(np.full(self.num_channels, fill, x.dtype.to_numpy())) for fill in (1, 0))
        else:
            scale, shift = ops.cast(self.weight, x.dtype), ops.cast(self.bias, x.dtype)
        return ops.group_norm(x, scale, shift, self.num_groups, self.eps)
