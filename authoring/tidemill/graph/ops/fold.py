"""Putting sliding blocks back together into an image."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from tidemill.graph.context import as_tensor, current
from tidemill.graph.dim import Dim, DimLike
from tidemill.graph.fault import op_fault
from tidemill.graph.ops.kernels import compute
from tidemill.graph.ops.promote import TensorLike
from tidemill.graph.ops.window import make_window, per_axis

if TYPE_CHECKING:
    from tidemill.graph.value import TensorValue

__all__ = ["fold"]


def fold(
    input: TensorLike,
    output_size: Sequence[DimLike],
    kernel_size: Sequence[int],
    stride: int | Sequence[int] = 1,
    dilation: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
) -> TensorValue:
    """The image that sliding blocks come from; where blocks overlap, their elements are added up.

    Args:
        input: [batch, channels * kernel height * kernel width, blocks], floating point.
        output_size: The height and width of the result.
        kernel_size: The height and width of a block.
        stride: How far apart blocks are.
        dilation: How far apart the elements of a block are.
        padding: What blocks reach beyond each side of the image.

    Returns:
        [batch, channels, *output_size].

    Raises:
        ValueError: The number of channels or blocks does not fit the other arguments.
    """
    value, size = as_tensor(input), [Dim(one) for one in output_size]
    kernel = per_axis("kernel_size", kernel_size, 2)
    sides = per_axis("padding", padding, 2, least=0)
    window = make_window(kernel, stride, dilation, (sides[0], sides[0], sides[1], sides[1]))
    if value.rank != 3 or len(size) != 2 or not value.dtype.is_float():
        raise op_fault(
            "fold", {"input": value}, "takes floats [batch, channels * kernel, blocks] and an output_size of two"
        )
    channels = value.shape[1] // (kernel[0] * kernel[1])
    blocks = window.steps(0, size[0]) * window.steps(1, size[1])
    if channels * kernel[0] * kernel[1] != value.shape[1] or blocks != value.shape[2]:
        raise op_fault(
            "fold",
            {"input": value},
            f"axis 1 ({value.shape[1]}) must be a multiple of the kernel's {kernel[0] * kernel[1]} elements, and axis "
            f"2 ({value.shape[2]}) must be the {blocks} blocks that an image of {size[0]} x {size[1]} has; rebind the "
            "input if its dims will be so when it runs",
        )
    shape = [value.shape[0], channels, *size]
    inputs = [value, current().extents(size), current().constant(np.array(kernel, np.int64))]
    attributes = {name: one for name, one in window.attributes().items() if name != "kernel_shape"}
    return compute("Col2Im", inputs, value.type.with_shape(shape), value, **attributes)
