"""Transposed convolutions: the gradients of convolutions, which enlarge what those shrink."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tidemill.graph.dim import Dim
from tidemill.graph.fault import op_fault
from tidemill.graph.layout import ConvInputLayout, FilterLayout
from tidemill.graph.ops.channels import channels_first, channels_restored, filter_first, kernel_sizes
from tidemill.graph.ops.conv import conv_operands
from tidemill.graph.ops.kernels import compute
from tidemill.graph.ops.promote import TensorLike
from tidemill.graph.ops.window import Window, make_window, per_axis

if TYPE_CHECKING:
    from tidemill.graph.value import TensorValue

__all__ = ["conv1d_transpose", "conv2d_transpose", "conv3d_transpose"]


def conv1d_transpose(
    x: TensorLike,
    filter: TensorLike,
    stride: int | Sequence[int] = 1,
    dilation: int | Sequence[int] = 1,
    padding: Sequence[int] = (0, 0),
    output_paddings: int | Sequence[int] = 0,
    bias: TensorLike | None = None,
    input_layout: ConvInputLayout = ConvInputLayout.NHWC,
    filter_layout: FilterLayout = FilterLayout.RSCF,
) -> TensorValue:
    """A transposed convolution along one axis; see `conv2d_transpose`.

    Args:
        x: [batch, length, in], or [batch, in, length] for `NCHW`.
        filter: [width, out, in] for `RSCF`, [in, out, width] for `CFRS`.
        stride: How far one element of `x` moves the filter.
        dilation: How far the filter's points are apart.
        padding: What is cut off the result before and after.
        output_paddings: What is added at the end again; smaller than the stride.
        bias: [out], or None.
        input_layout: Where the channels of `x` and of the result are.
        filter_layout: The order of the filter's axes.
    """
    steps = (stride, dilation, padding)
    return _transpose("conv1d_transpose", (x, filter, bias), steps, output_paddings, (input_layout, filter_layout))


def conv2d_transpose(
    x: TensorLike,
    filter: TensorLike,
    stride: int | Sequence[int] = (1, 1),
    dilation: int | Sequence[int] = (1, 1),
    padding: Sequence[int] = (0, 0, 0, 0),
    output_paddings: int | Sequence[int] = (0, 0),
    bias: TensorLike | None = None,
    input_layout: ConvInputLayout = ConvInputLayout.NHWC,
    filter_layout: FilterLayout = FilterLayout.RSCF,
) -> TensorValue:
    """A transposed convolution over height and width.

    Args:
        x: [batch, height, width, in], or [batch, in, height, width] for `NCHW`; floating point.
        filter: [height, width, out, in] for `RSCF`, [in, out, height, width] for `CFRS`, which is torch's.
        stride: How far one element of `x` moves the filter along each axis.
        dilation: How far the filter's points are apart along each axis.
        padding: What is cut off the result at the (top, bottom, left, right).
        output_paddings: What is added at the end of each axis again; smaller than the stride.
        bias: [out], or None.
        input_layout: Where the channels of `x` and of the result are.
        filter_layout: The order of the filter's axes.

    Returns:
        The result in the layout of `x`; along each axis of
        (size - 1) * stride - before - after + dilation * (kernel - 1) + 1 + output_padding elements.

    Raises:
        ValueError: A rank or a number of channels does not fit, or output_paddings reach the stride.
    """
    steps = (stride, dilation, padding)
    return _transpose("conv2d_transpose", (x, filter, bias), steps, output_paddings, (input_layout, filter_layout))


def conv3d_transpose(
    x: TensorLike,
    filter: TensorLike,
    stride: int | Sequence[int] = (1, 1, 1),
    dilation: int | Sequence[int] = (1, 1, 1),
    padding: Sequence[int] = (0, 0, 0, 0, 0, 0),
    output_paddings: int | Sequence[int] = (0, 0, 0),
    bias: TensorLike | None = None,
    input_layout: ConvInputLayout = ConvInputLayout.NHWC,
    filter_layout: FilterLayout = FilterLayout.QRSCF,
) -> TensorValue:
    """A transposed convolution over depth, height and width; see `conv2d_transpose`.

    Args:
        x: [batch, depth, height, width, in], or [batch, in, depth, height, width] for `NCHW`.
        filter: [depth, height, width, out, in] for `QRSCF`, [in, out, depth, height, width] for `CFRS`.
        stride: How far one element of `x` moves the filter along each axis.
        dilation: How far the filter's points are apart along each axis.
        padding: What is cut off the result at the (front, back, top, bottom, left, right).
        output_paddings: What is added at the end of each axis again; smaller than the stride.
        bias: [out], or None.
        input_layout: Where the channels of `x` and of the result are.
        filter_layout: The order of the filter's axes.
    """
    steps = (stride, dilation, padding)
    return _transpose("conv3d_transpose", (x, filter, bias), steps, output_paddings, (input_layout, filter_layout))


_RANKS = {"conv1d_transpose": 1, "conv2d_transpose": 2, "conv3d_transpose": 3}


def _transpose(
    op: str,
    given: tuple[TensorLike, TensorLike, TensorLike | None],
    steps: tuple[int | Sequence[int], int | Sequence[int], Sequence[int]],
    extra: int | Sequence[int],
    layouts: tuple[ConvInputLayout, FilterLayout],
) -> TensorValue:
    rank = _RANKS[op]
    x, filter, bias = conv_operands(op, rank, *given)
    if layouts[1] in (FilterLayout.FCRS, FilterLayout.FCQRS):
        raise op_fault(op, {"filter": filter}, "takes filters as RSCF, QRSCF or CFRS ([in, out, ...], torch's)")
    image, kernel = channels_first(x, layouts[0]), filter_first(filter, layouts[1])
    window = make_window(kernel_sizes(op, filter, kernel.shape[2:]), *steps)
    more = per_axis("output_paddings", extra, rank, least=0)
    _check(op, image, kernel, bias)
    if any(size >= step for size, step in zip(more, window.stride, strict=True)):
        raise ValueError(
            f"output padding must be smaller than either stride or dilation, but got output_padding = {more}"
        )
    spatial = [_enlarged(window, axis, size) + more[axis] for axis, size in enumerate(image.shape[2:])]
    type = image.type.with_shape([image.shape[0], kernel.shape[1], *spatial])
    inputs = [image, kernel] if bias is None else [image, kernel, bias]
    result = compute("ConvTranspose", inputs, type, image, output_padding=more, **window.attributes())
    return channels_restored(result, layouts[0])


def _enlarged(window: Window, axis: int, size: Dim) -> Dim:
    return (size - 1) * window.stride[axis] - window.before[axis] - window.after[axis] + window.reach[axis]


def _check(op: str, image: TensorValue, kernel: TensorValue, bias: TensorValue | None) -> None:
    if image.shape[1] != kernel.shape[0] or (bias is not None and bias.shape[0] != kernel.shape[1]):
        raise op_fault(
            op,
            {"x": image, "filter": kernel, "bias": bias},
            f"the filter takes {kernel.shape[0]} channels and gives {kernel.shape[1]}, the image has "
            f"{image.shape[1]}; shown here with the channels first",
        )
