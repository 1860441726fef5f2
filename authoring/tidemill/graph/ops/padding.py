"""Padding around a tensor."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from tidemill.graph.context import as_tensor, current
from tidemill.graph.dim import StaticDim
from tidemill.graph.fault import op_fault
from tidemill.graph.ops.kernels import compute
from tidemill.graph.ops.promote import TensorLike, cast_to, is_weak, weak_constant

if TYPE_CHECKING:
    from tidemill.graph.value import TensorValue

__all__ = ["pad"]

_MODES = ("constant", "reflect", "edge")


def pad(input: TensorLike, paddings: Iterable[int], mode: str = "constant", value: TensorLike = 0) -> TensorValue:
    """The tensor with elements added before and after it along each axis.

    Args:
        input: Any tensor but strings.
        paddings: How many, none negative: [before axis 0, after axis 0, before axis 1, ...].
        mode: "constant" to fill with `value`; "reflect" to mirror without the border element, which takes an axis
            that is larger than the padding; "edge" to repeat the border element.
        value: A scalar of the dtype of `input`, for the mode "constant".
    """
    tensor, amounts = as_tensor(input), list(paddings)
    _check(tensor, amounts, mode)
    if not any(amounts):
        return tensor
    before, after = amounts[::2], amounts[1::2]
    shape = [dim + (low + high) for dim, low, high in zip(tensor.shape, before, after, strict=True)]
    sizes = current().constant(np.array([*before, *after], np.int64))
    inputs = [tensor, sizes] if mode != "constant" else [tensor, sizes, _fill(tensor, value)]
    return compute("Pad", inputs, tensor.type.with_shape(shape), of=tensor, mode=mode)


def _fill(tensor: TensorValue, value: TensorLike) -> TensorValue:
    if is_weak(value):
        return (
            weak_constant(value, tensor) if tensor.dtype.name != "bool" else current().constant(np.array(bool(value)))
        )
    fill = as_tensor(value)
    if fill.rank:
        raise op_fault("pad", {"input": tensor, "value": fill}, "value must be a scalar")
    return cast_to(fill, tensor.dtype)


def _check(tensor: TensorValue, amounts: Sequence[int], mode: str) -> None:
    if mode not in _MODES:
        raise ValueError(f"unsupported padding mode {mode!r}; expected 'constant', 'reflect', or 'edge'")
    if len(amounts) != 2 * tensor.rank:
        raise op_fault("pad", {"input": tensor}, f"paddings {amounts} must be two numbers for each axis")
    if any(amount < 0 for amount in amounts):
        raise ValueError(f"padding values must be non-negative but given {list(amounts)}")
    for axis, dim in enumerate(tensor.shape):
        most = max(amounts[2 * axis : 2 * axis + 2])
        least = {"constant": 0, "edge": 1, "reflect": most + 1}[mode]
        if most and isinstance(dim, StaticDim) and dim.dim < least:
            raise op_fault("pad", {"input": tensor}, f"axis {axis} of size {dim} is too small for {mode!r} by {most}")
