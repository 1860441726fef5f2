"""Normalisation over the last axis."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tidemill.dtype import DType
from tidemill.graph import ops
from tidemill.graph.type import DeviceRef
from tidemill.graph.value import TensorValue
from tidemill.graph.weight import Weight
from tidemill.nn.layer.module import Module

__all__ = ["ConstantLayerNorm", "LayerNorm", "RMSNorm"]


class LayerNorm(Module):
    """Each vector shifted to mean 0 and scaled to variance 1, then scaled and shifted by what was learned.

    Args:
        dims: The length of a vector, the last dim of the input.
        devices: Where the weights live; the first counts.
        dtype: The element type of the weights.
        eps: Added to the variance.
        use_bias: Whether there is a shift.
        keep_dtype: Compute in the input's dtype; otherwise dtypes below float32 are computed in float32.
        elementwise_affine: Whether anything was learned; without it there are no weights.

    Weights: `weight` [dims], `bias` [dims].
    """

    def __init__(
        self,
        dims: int,
        devices: Sequence[DeviceRef],
        dtype: DType,
        eps: float = 1e-5,
        use_bias: bool = True,
        keep_dtype: bool = False,
        elementwise_affine: bool = True,
    ) -> None:
        super().__init__()
        device = devices[0] if devices else None
        self.dims = dims
        self.eps = eps
        self.keep_dtype = keep_dtype
        self.weight = Weight("weight", dtype, (dims,), device) if elementwise_affine else None
        self.bias = Weight("bias", dtype, (dims,), device) if elementwise_affine and use_bias else None

    def __call__(self, x: TensorValue) -> TensorValue:
        """[..., dims] -> [..., dims] of the input's dtype."""
        dtype = x.dtype if self.keep_dtype else _at_least_float32(x.dtype)
        scale = _ones(self.dims, dtype) if self.weight is None else ops.cast(self.weight, dtype)
        shift = None if self.bias is None else ops.cast(self.bias, dtype)
        return ops.cast(ops.layer_norm(ops.cast(x, dtype), scale, shift, self.eps), x.dtype)


class ConstantLayerNorm(Module):
    """Each vector shifted to mean 0 and scaled to variance 1; nothing is learned.

    Args:
        dims: The length of a vector, the last dim of the input.
        device: Where it is computed.
        dtype: The element type of the scale; has no effect on the result.
        eps: Added to the variance.
    """

    def __init__(
        self,
        dims: int | Sequence[int],
        device: DeviceRef | None = None,
        dtype: DType = DType.float32,
        eps: float = 1e-5,
    ) -> None:
        super().__init__()
        sizes = (dims,) if isinstance(dims, int) else tuple(dims)
        if len(sizes) != 1:
            raise ValueError(f"ConstantLayerNorm(dims={sizes}): only the last axis is normalised, so dims is one size")
        self.dims = sizes[0]
        self.eps = eps
        self.device = device
        self.dtype = dtype

    def __call__(self, x: TensorValue) -> TensorValue:
        """[..., dims] -> [..., dims] of the input's dtype."""
        dtype = _at_least_float32(x.dtype)
        return ops.cast(ops.layer_norm(ops.cast(x, dtype), _ones(self.dims, dtype), None, self.eps), x.dtype)


class RMSNorm(Module):
    """Each vector scaled to a root mean square of 1, then scaled by what was learned.

    Args:
        dim: The length of a vector, the last dim of the input.
        dtype: The element type of the weight; it is used in the input's.
        eps: Added to the mean square.
        weight_offset: Added to the learned scale.
        multiply_before_cast: Whether dtypes below float32 are cast back after the learned scale, else before it.

    Weights: `weight` [dim].
    """

    def __init__(
        self,
        dim: int,
        dtype: DType,
        eps: float = 1e-6,
        weight_offset: float = 0.0,
        multiply_before_cast: bool = True,
    ) -> None:
        super().__init__()
        self.dim = dim
        self.eps = eps
        self.weight_offset = weight_offset
        self.multiply_before_cast = multiply_before_cast
        self.weight = Weight("weight", dtype, (dim,))

    def __call__(self, x: TensorValue) -> TensorValue:
        """[..., dim] -> [..., dim] of the input's dtype."""
        if x.shape[-1] != self.dim:
            raise ValueError(
                f"RMSNorm weight dimension ({self.dim}) must match the input's last dimension ({x.shape[-1]})"
            )
        weight = ops.cast(self.weight, x.dtype)
        return ops.rms_norm(x, weight, self.eps, self.weight_offset, self.multiply_before_cast)


def _at_least_float32(dtype: DType) -> DType:
    return DType.float32 if dtype.size_in_bytes < 4 else dtype


def _ones(size: int, dtype: DType) -> TensorValue:
    return ops.constant(np.ones(size, dtype.to_numpy()))
