"""Group normalisation."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tidemill.dtype import DType
from tidemill.graph.context import as_tensor, current
from tidemill.graph.dim import Dim, exact_quotient
from tidemill.graph.fault import op_fault
from tidemill.graph.ops.elementwise import add, div, mul, sqrt, sub
from tidemill.graph.ops.kernels import compute
from tidemill.graph.ops.promote import TensorLike
from tidemill.graph.ops.reduction import mean
from tidemill.graph.ops.shaping import reshape
from tidemill.graph.shape import Shape

if TYPE_CHECKING:
    from tidemill.graph.value import TensorValue

__all__ = ["group_norm"]


def group_norm(input: TensorLike, gamma: TensorLike, beta: TensorLike, num_groups: int, epsilon: float) -> TensorValue:
    """(x - mean) / sqrt(variance + epsilon) within each group of channels, scaled and shifted (Wu and He, 2018).

    Not ONNX's GroupNormalization, which fails on a batch of none.

    Args:
        input: [batch, channels, ...], floating point.
        gamma: [channels], the scale of each.
        beta: [channels], the shift of each.
        num_groups: How many groups; divides the channels.
        epsilon: Added to the variance.

    Raises:
        ValueError: A rank or a size does not fit.
    """
    value, scale, shift = as_tensor(input), as_tensor(gamma), as_tensor(beta)
    per_group = _check("group_norm", value, scale, shift, num_groups)
    shape = value.shape
    rest = per_group * Shape(shape[2:]).num_elements
    normal = _normalised(reshape(value, (shape[0], num_groups, rest)), num_groups, float(epsilon))
    aligned = (shape[1], *[Dim(1)] * (value.rank - 2))
    return add(mul(reshape(normal, shape), reshape(scale, aligned)), reshape(shift, aligned))


def _normalised(groups: TensorValue, count: int, epsilon: float) -> TensorValue:
    """[batch, groups, elements] normalised over the elements."""
    if groups.dtype is DType.float64:
        centred = sub(groups, mean(groups))
        return div(centred, sqrt(add(mean(mul(centred, centred)), epsilon)))
    dtype = groups.dtype.to_numpy()
    ones, zeros = (current().constant(make(count, dtype), groups.device) for make in (np.ones, np.zeros))
    return compute("InstanceNormalization", [groups, ones, zeros], groups.type, groups, epsilon=epsilon)


def _check(op: str, value: TensorValue, scale: TensorValue, shift: TensorValue, groups: int) -> Dim:
    """How many channels a group has."""
    inputs = {"input": value, "gamma": scale, "beta": shift}
    if value.rank < 2 or not value.dtype.is_float():
        raise op_fault(op, inputs, f"Expected input tensor of floats with >=2 dimensions, got shape {value.shape}")
    wanted = (value.dtype, [value.shape[1]])
    if any((one.dtype, list(one.shape)) != wanted for one in (scale, shift)):
        raise op_fault(op, inputs, f"gamma and beta must be [{value.shape[1]}] of {value.dtype!r}")
    size = exact_quotient(value.shape[1], Dim(groups)) if groups > 0 else None
    if size is None:
        raise op_fault(op, inputs, f"num_groups={groups} must divide the {value.shape[1]} channels")
    return size
