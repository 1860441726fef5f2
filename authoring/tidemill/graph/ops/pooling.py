"""Pooling: what a sliding window makes of the elements under it, channel by channel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from tidemill.graph.context import as_tensor, current, emit
from tidemill.graph.dim import Dim, StaticDim
from tidemill.graph.fault import op_fault
from tidemill.graph.layout import ConvInputLayout
from tidemill.graph.ops.channels import channels_first, channels_restored
from tidemill.graph.ops.kernels import kernel_dtype
from tidemill.graph.ops.promote import TensorLike, cast_to
from tidemill.graph.ops.window import Window, make_window, per_axis
from tidemill.graph.type import TensorType

if TYPE_CHECKING:
    from tidemill.graph.value import TensorValue

__all__ = ["avg_pool1d", "avg_pool2d", "avg_pool3d", "max_pool1d", "max_pool2d", "max_pool3d"]

_Sizes = int | Sequence[int]


def avg_pool1d(
    input: TensorLike,
    kernel_size: _Sizes,
    stride: _Sizes = 1,
    dilation: _Sizes = 1,
    padding: _Sizes = 0,
    ceil_mode: bool = False,
    count_boundary: bool = True,
    *,
    input_layout: ConvInputLayout = ConvInputLayout.NHWC,
) -> TensorValue:
    """The mean of every window along one axis; see `avg_pool2d`."""
    window = _symmetric(1, kernel_size, stride, dilation, padding)
    return _average("avg_pool1d", input, window, (ceil_mode, count_boundary), input_layout)


def avg_pool2d(
    input: TensorLike,
    kernel_size: _Sizes,
    stride: _Sizes = 1,
    dilation: _Sizes = 1,
    padding: _Sizes = 0,
    ceil_mode: bool = False,
    count_boundary: bool = True,
    *,
    input_layout: ConvInputLayout = ConvInputLayout.NHWC,
) -> TensorValue:
    """The mean of every window over height and width.

    Args:
        input: [batch, height, width, channels], or [batch, channels, height, width] for `NCHW`; floating point.
        kernel_size: The size of the window along each axis.
        stride: How far one step goes; one number counts for both axes, here and below.
        dilation: How far the window's points are apart.
        padding: Zeros on both sides of each axis.
        ceil_mode: Whether a last window that does not fit counts too; it must start on the input or the padding
            before it. What hangs over is no part of its mean.
        count_boundary: Whether padding counts as elements of a window.
        input_layout: Where the channels of `input` and of the result are.

    Raises:
        ValueError: A rank or a window does not fit.
    """
    window = _symmetric(2, kernel_size, stride, dilation, padding)
    return _average("avg_pool2d", input, window, (ceil_mode, count_boundary), input_layout)


def avg_pool3d(
    input: TensorLike,
    kernel_size: _Sizes,
    stride: _Sizes = 1,
    dilation: _Sizes = 1,
    padding: _Sizes = 0,
    ceil_mode: bool = False,
    count_boundary: bool = True,
    *,
    input_layout: ConvInputLayout = ConvInputLayout.NHWC,
) -> TensorValue:
    """The mean of every window over depth, height and width; see `avg_pool2d`."""
    window = _symmetric(3, kernel_size, stride, dilation, padding)
    return _average("avg_pool3d", input, window, (ceil_mode, count_boundary), input_layout)


def max_pool1d(
    input: TensorLike,
    kernel_size: _Sizes,
    stride: _Sizes = 1,
    dilation: _Sizes = 1,
    padding: _Sizes = 0,
    ceil_mode: bool = False,
    *,
    input_layout: ConvInputLayout = ConvInputLayout.NHWC,
) -> TensorValue:
    """The largest element of every window along one axis; see `max_pool2d`."""
    return _largest("max_pool1d", input, _symmetric(1, kernel_size, stride, dilation, padding), ceil_mode, input_layout)


def max_pool2d(
    input: TensorLike,
    kernel_size: _Sizes,
    stride: _Sizes = 1,
    dilation: _Sizes = 1,
    padding: _Sizes = 0,
    ceil_mode: bool = False,
    *,
    input_layout: ConvInputLayout = ConvInputLayout.NHWC,
) -> TensorValue:
    """The largest element of every window over height and width; padding never wins.

    ONNX Runtime passes over NaN, and begins with the smallest finite number: that is the result where a window has
    nothing but NaN, minus infinity or padding.

    Args:
        input: [batch, height, width, channels], or [batch, channels, height, width] for `NCHW`.
        kernel_size: The size of the window along each axis.
        stride: How far one step goes; one number counts for both axes, here and below.
        dilation: How far the window's points are apart.
        padding: What is added on both sides of each axis.
        ceil_mode: Whether a last window that does not fit counts too; it must start on the input or the padding
            before it.
        input_layout: Where the channels of `input` and of the result are.

    Raises:
        ValueError: A rank or a window does not fit.
    """
    return _largest("max_pool2d", input, _symmetric(2, kernel_size, stride, dilation, padding), ceil_mode, input_layout)


def max_pool3d(
    input: TensorLike,
    kernel_size: _Sizes,
    stride: _Sizes = 1,
    dilation: _Sizes = 1,
    padding: _Sizes = 0,
    ceil_mode: bool = False,
    *,
    input_layout: ConvInputLayout = ConvInputLayout.NHWC,
) -> TensorValue:
    """The largest element of every window over depth, height and width; see `max_pool2d`."""
    return _largest("max_pool3d", input, _symmetric(3, kernel_size, stride, dilation, padding), ceil_mode, input_layout)


def _symmetric(rank: int, kernel: _Sizes, stride: _Sizes, dilation: _Sizes, padding: _Sizes) -> Window:
    sides = [side for size in per_axis("padding", padding, rank, least=0) for side in (size, size)]
    return make_window(per_axis("kernel_size", kernel, rank), stride, dilation, sides)


def _largest(op: str, input: TensorLike, window: Window, ceil: bool, layout: ConvInputLayout) -> TensorValue:
    value, image = _image(op, "MaxPool", input, window, layout)
    whole = _with_overhang(op, image, window) if ceil else window
    if not _fits(whole):
        image, whole = _padded(image, whole, _lowest(image.dtype.to_numpy()))
    pooled = emit("MaxPool", [image], _pooled_type(image, whole), **whole.attributes())
    return channels_restored(cast_to(pooled, value.dtype), layout)


def _average(
    op: str, input: TensorLike, window: Window, modes: tuple[bool, bool], layout: ConvInputLayout
) -> TensorValue:
    ceil, count_boundary = modes
    value, image = _image(op, "AveragePool", input, window, layout)
    whole = _with_overhang(op, image, window) if ceil else window
    counted = int(count_boundary)
    if count_boundary and (whole != window or not _fits(window)):
        # ONNX counts all padding or none, and what hangs over never counts: the padding becomes real zeros.
        image, _ = _padded(image, window, 0)
        hanging = tuple(end - own for end, own in zip(whole.after, window.after, strict=True))
        whole, counted = replace(whole, before=(0,) * len(hanging), after=hanging), 0
    if not _fits(whole):
        raise op_fault(op, {"input": value}, f"padding must be smaller than kernel_size {window.kernel} to be left out")
    type = _pooled_type(image, whole)
    pooled = emit("AveragePool", [image], type, count_include_pad=counted, **whole.attributes())
    return channels_restored(cast_to(pooled, value.dtype), layout)


def _image(
    op: str, kernel: str, input: TensorLike, window: Window, layout: ConvInputLayout
) -> tuple[TensorValue, TensorValue]:
    """The input as it came, and with channels first in a dtype that the kernel knows."""
    value = as_tensor(input)
    rank = len(window.kernel) + 2
    if value.rank != rank:
        raise op_fault(
            op, {"input": value}, f"takes a tensor of rank {rank}: batch, channels and {rank - 2} spatial axes"
        )
    return value, channels_first(cast_to(value, kernel_dtype(kernel, value)), layout)


def _pooled_type(image: TensorValue, window: Window) -> TensorType:
    spatial = [window.steps(axis, size) for axis, size in enumerate(image.shape[2:])]
    return image.type.with_shape([*image.shape[:2], *spatial])


def _with_overhang(op: str, image: TensorValue, window: Window) -> Window:
    """The window with so much more padding at the end that rounding down counts what rounding up would."""
    extra = [_overhang(op, image, window, axis) for axis in range(len(window.kernel))]
    return replace(window, after=tuple(size + more for size, more in zip(window.after, extra, strict=True)))


def _overhang(op: str, image: TensorValue, window: Window, axis: int) -> int:
    size, step, reach = image.shape[axis + 2], window.stride[axis], window.reach[axis]
    before, after = window.before[axis], window.after[axis]
    if isinstance(size, StaticDim):
        last = _last_start(size, window, axis)
        return max(0, last + reach - int(size) - before - after)
    if after + step > reach:
        raise op_fault(
            op,
            {"input": image},
            f"ceil_mode over the symbolic dim {size} needs a stride of at most {reach - after} here: else whether the "
            "last window starts on padding depends on the size; make the dim static, or leave ceil_mode out",
        )
    return step - 1


def _last_start(size: Dim, window: Window, axis: int) -> int:
    step, before = window.stride[axis], window.before[axis]
    room = int(size) + before + window.after[axis] - window.reach[axis]
    last = -(-room // step) * step
    return last - step if last >= int(size) + before else last


def _fits(window: Window) -> bool:
    """Whether ONNX Runtime takes this padding: it must be smaller than the kernel."""
    sizes = zip(window.before, window.after, window.kernel, strict=True)
    return all(before < size and after < size for before, after, size in sizes)


def _padded(image: TensorValue, window: Window, filler: float) -> tuple[TensorValue, Window]:
    """The image with the window's padding as elements, and the window without."""
    none = (0,) * len(window.kernel)
    spatial = zip(image.shape[2:], window.before, window.after, strict=True)
    type = image.type.with_shape([*image.shape[:2], *(size + before + after for size, before, after in spatial)])
    pads = np.array([0, 0, *window.before, 0, 0, *window.after], np.int64)
    inputs = [image, current().constant(pads), current().constant(np.array(filler, image.dtype.to_numpy()))]
    return emit("Pad", inputs, type), replace(window, before=none, after=none)


def _lowest(dtype: np.dtype[np.generic]) -> float:
    return float(np.finfo(dtype.name).min) if dtype.kind == "f" else int(np.iinfo(dtype.name).min)
