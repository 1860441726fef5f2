"""Convolutions over one, two and three spatial axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tidemill.graph.context import as_tensor
from tidemill.graph.dim import StaticDim
from tidemill.graph.fault import op_fault
from tidemill.graph.layout import ConvInputLayout, FilterLayout
from tidemill.graph.ops.channels import channels_first, channels_restored, filter_first, kernel_sizes
from tidemill.graph.ops.kernels import compute
from tidemill.graph.ops.promote import TensorLike, cast_to, is_weak, operands, weak_constant
from tidemill.graph.ops.window import make_window

if TYPE_CHECKING:
    from tidemill.graph.value import TensorValue

__all__ = ["conv1d", "conv2d", "conv3d", "conv_operands"]


def conv1d(
    x: TensorLike,
    filter: TensorLike,
    stride: int | Sequence[int] = 1,
    dilation: int | Sequence[int] = 1,
    padding: Sequence[int] = (0, 0),
    groups: int = 1,
    bias: TensorLike | None = None,
    input_layout: ConvInputLayout = ConvInputLayout.NHWC,
    filter_layout: FilterLayout = FilterLayout.RSCF,
) -> TensorValue:
    """A convolution along one axis; see `conv2d`.

    Args:
        x: [batch, length, in], or [batch, in, length] for `NCHW`.
        filter: [width, in / groups, out] for `RSCF`, [out, in / groups, width] for `FCRS`.
        stride: How far one step goes.
        dilation: How far the filter's points are apart.
        padding: Zeros before and after.
        groups: Into how many independent convolutions the channels are divided.
        bias: [out], or None.
        input_layout: Where the channels of `x` and of the result are.
        filter_layout: The order of the filter's axes.
    """
    window = (stride, dilation, padding)
    return _conv("conv1d", 1, (x, filter, bias), window, groups, (input_layout, filter_layout))


def conv2d(
    x: TensorLike,
    filter: TensorLike,
    stride: int | Sequence[int] = (1, 1),
    dilation: int | Sequence[int] = (1, 1),
    padding: Sequence[int] = (0, 0, 0, 0),
    groups: int = 1,
    bias: TensorLike | None = None,
    input_layout: ConvInputLayout = ConvInputLayout.NHWC,
    filter_layout: FilterLayout = FilterLayout.RSCF,
) -> TensorValue:
    """A convolution (cross-correlation, as everywhere in deep learning) over height and width.

    Args:
        x: [batch, height, width, in], or [batch, in, height, width] for `NCHW`; floating point.
        filter: [height, width, in / groups, out] for `RSCF`, [out, in / groups, height, width] for `FCRS`.
        stride: How far one step goes along each axis.
        dilation: How far the filter's points are apart along each axis.
        padding: Zeros at the (top, bottom, left, right).
        groups: Into how many independent convolutions the channels are divided.
        bias: [out], or None.
        input_layout: Where the channels of `x` and of the result are.
        filter_layout: The order of the filter's axes.

    Returns:
        The result in the layout of `x`; along each axis of
        (size + before + after - dilation * (kernel - 1) - 1) // stride + 1 elements.

    Raises:
        ValueError: A rank, a number of channels or a window does not fit.
    """
    window = (stride, dilation, padding)
    return _conv("conv2d", 2, (x, filter, bias), window, groups, (input_layout, filter_layout))


def conv3d(
    x: TensorLike,
    filter: TensorLike,
    stride: int | Sequence[int] = (1, 1, 1),
    dilation: int | Sequence[int] = (1, 1, 1),
    padding: Sequence[int] = (0, 0, 0, 0, 0, 0),
    groups: int = 1,
    bias: TensorLike | None = None,
    input_layout: ConvInputLayout = ConvInputLayout.NHWC,
    filter_layout: FilterLayout = FilterLayout.QRSCF,
) -> TensorValue:
    """A convolution over depth, height and width; see `conv2d`.

    Args:
        x: [batch, depth, height, width, in], or [batch, in, depth, height, width] for `NCHW`.
        filter: [depth, height, width, in / groups, out] for `QRSCF`, [out, in / groups, depth, height, width] for
            `FCQRS`.
        stride: How far one step goes along each axis.
        dilation: How far the filter's points are apart along each axis.
        padding: Zeros at the (front, back, top, bottom, left, right).
        groups: Into how many independent convolutions the channels are divided.
        bias: [out], or None.
        input_layout: Where the channels of `x` and of the result are.
        filter_layout: The order of the filter's axes.
    """
    window = (stride, dilation, padding)
    return _conv("conv3d", 3, (x, filter, bias), window, groups, (input_layout, filter_layout))


def conv_operands(
    op: str, rank: int, x: TensorLike, filter: TensorLike, bias: TensorLike | None
) -> tuple[TensorValue, TensorValue, TensorValue | None]:
    """Image, filter and bias in one floating point dtype and of the right ranks."""
    image, kernel = operands(op, x, filter)
    if bias is not None:
        shift = weak_constant(bias, image) if is_weak(bias) else as_tensor(bias)
        image, shift = operands(op, image, shift)
        kernel = cast_to(kernel, image.dtype)
        if shift.rank != 1:
            raise op_fault(op, {"x": image, "bias": shift}, "bias must be [out]")
    if not image.dtype.is_float() or image.rank != rank + 2 or kernel.rank != rank + 2:
        raise op_fault(
            op, {"x": image, "filter": kernel}, f"takes an image and a filter of floats, both of rank {rank + 2}"
        )
    return image, kernel, None if bias is None else shift


def _conv(
    op: str,
    rank: int,
    given: tuple[TensorLike, TensorLike, TensorLike | None],
    steps: tuple[int | Sequence[int], int | Sequence[int], Sequence[int]],
    groups: int,
    layouts: tuple[ConvInputLayout, FilterLayout],
) -> TensorValue:
    x, filter, bias = conv_operands(op, rank, *given)
    if layouts[1] is FilterLayout.CFRS:
        raise op_fault(op, {"filter": filter}, "CFRS is the layout of transposed convolutions; use FCRS or RSCF here")
    image, kernel = channels_first(x, layouts[0]), filter_first(filter, layouts[1])
    window = make_window(kernel_sizes(op, filter, kernel.shape[2:]), *steps)
    _check_channels(op, image, kernel, bias, groups)
    spatial = [window.steps(axis, size) for axis, size in enumerate(image.shape[2:])]
    type = image.type.with_shape([image.shape[0], kernel.shape[0], *spatial])
    inputs = [image, kernel] if bias is None else [image, kernel, bias]
    return channels_restored(compute("Conv", inputs, type, image, group=groups, **window.attributes()), layouts[0])


def _check_channels(op: str, image: TensorValue, kernel: TensorValue, bias: TensorValue | None, groups: int) -> None:
    out, channels = kernel.shape[0], kernel.shape[1]
    uneven = isinstance(out, StaticDim) and groups > 0 and out.dim % groups
    if groups < 1 or uneven or image.shape[1] != channels * groups:
        raise op_fault(
            op,
            {"x": image, "filter": kernel},
            f"the image has {image.shape[1]} channels, a filter of {channels} in {groups} groups takes "
            f"{channels * max(groups, 0)}, and its {out} features must divide into the groups; "
            "shown here with the channels first",
        )
    if bias is not None and bias.shape[0] != out:
        raise op_fault(op, {"filter": kernel, "bias": bias}, f"bias must have the filter's {out} features")
