"""Batch normalisation as it is at inference: by the statistics of training."""

from __future__ import annotations

import numpy as np

from tidemill.dtype import DType
from tidemill.graph import ops
from tidemill.graph.type import DeviceRef
from tidemill.graph.value import TensorValue
from tidemill.graph.weight import Weight
from tidemill.nn.layer.module import Module

__all__ = ["BatchNorm"]


class BatchNorm(Module):
    """Each channel shifted and scaled by its statistics, then scaled and shifted by what was learned.

    For any number of spatial axes; the keys are torch's. `num_batches_tracked`, which torch's checkpoints also hold,
    is accepted and not used.

    Args:
        num_features: The number of channels.
        dtype: The element type of the weights.
        device: Where they live.
        eps: Added to the variance.
        affine: Whether there are a learned scale and shift.

    Weights: `weight`, `bias` if affine, `running_mean` and `running_var`, each [num_features].
    """

    ignored_keys = ("num_batches_tracked",)

    def __init__(
        self,
        num_features: int,
        dtype: DType = DType.float32,
        device: DeviceRef | None = None,
        eps: float = 1e-5,
        affine: bool = True,
    ) -> None:
        super().__init__()
        shape = (num_features,)
        self.num_features = num_features
        self.eps = eps
        self.weight = Weight("weight", dtype, shape, device) if affine else None
        self.bias = Weight("bias", dtype, shape, device) if affine else None
        self.running_mean = Weight("running_mean", dtype, shape, device)
        self.running_var = Weight("running_var", dtype, shape, device)

    def __call__(self, x: TensorValue) -> TensorValue:
        """[batch, num_features, ...] -> the same; dtypes below float32 are computed in float32."""
        dtype = DType.float32 if x.dtype.size_in_bytes < 4 else x.dtype
        statistics = ops.cast(self.running_mean, dtype), ops.cast(self.running_var, dtype)
        learned = (
            (self._constant(1, dtype), self._constant(0, dtype))
            if self.weight is None
            else (ops.cast(self.weight, dtype), ops.cast(self.bias, dtype))
        )
        return ops.cast(ops.batch_norm(ops.cast(x, dtype), statistics, learned, self.eps), x.dtype)

    def _constant(self, value: int, dtype: DType) -> TensorValue:
        return ops.constant(np.full(self.num_features, value, dtype.to_numpy()))
