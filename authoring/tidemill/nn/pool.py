"""Pooling layers: the mean or the largest element of every window."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tidemill.graph import ops
from tidemill.graph.layout import ConvInputLayout
from tidemill.graph.value import TensorValue
from tidemill.nn.layer.module import Module

__all__ = ["AvgPool1d", "AvgPool2d", "AvgPool3d", "MaxPool1d", "MaxPool2d", "MaxPool3d"]

_Sizes = int | Sequence[int]


class _MaxPool(Module):
    """The largest element of every window; padding never wins.

    Args:
        kernel_size: The window's size along each axis, or one number for all.
        stride: How far one step goes; the window's size by default.
        padding: What is added on both sides of each axis.
        dilation: How far the window's points are apart.
        ceil_mode: Whether a last window that does not fit counts too.
        permute: Whether images are laid out as torch's, channels on axis 1; by default channels come last.
    """

    operator: Callable[..., TensorValue]

    def __init__(
        self,
        kernel_size: _Sizes,
        stride: _Sizes | None = None,
        padding: _Sizes = 0,
        dilation: _Sizes = 1,
        ceil_mode: bool = False,
        permute: bool = False,
    ) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = kernel_size if stride is None else stride
        self.padding = padding
        self.dilation = dilation
        self.ceil_mode = ceil_mode
        self.permute = permute

    def __call__(self, x: TensorValue) -> TensorValue:
        """[batch, ..., channels] -> the same with smaller axes; with `permute` the channels are on axis 1."""
        steps = (self.kernel_size, self.stride, self.dilation, self.padding, self.ceil_mode)
        return type(self).operator(x, *steps, input_layout=_layout(self.permute))


class _AvgPool(Module):
    """The mean of every window.

    Args:
        kernel_size: The window's size along each axis, or one number for all.
        stride: How far one step goes; the window's size by default.
        padding: Zeros on both sides of each axis.
        ceil_mode: Whether a last window that does not fit counts too.
        count_include_pad: Whether padding counts as elements of a window.
        permute: Whether images are laid out as torch's, channels on axis 1; by default channels come last.
    """

    operator: Callable[..., TensorValue]

    def __init__(
        self,
        kernel_size: _Sizes,
        stride: _Sizes | None = None,
        padding: _Sizes = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        permute: bool = False,
    ) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = kernel_size if stride is None else stride
        self.padding = padding
        self.ceil_mode = ceil_mode
        self.count_include_pad = count_include_pad
        self.permute = permute

    def __call__(self, x: TensorValue) -> TensorValue:
        """[batch, ..., channels] -> the same with smaller axes; with `permute` the channels are on axis 1."""
        steps = (self.kernel_size, self.stride, 1, self.padding, self.ceil_mode, self.count_include_pad)
        return type(self).operator(x, *steps, input_layout=_layout(self.permute))


class MaxPool1d(_MaxPool):
    """The largest element of every window over one axis; the base class lists the arguments."""

    operator = staticmethod(ops.max_pool1d)


class MaxPool2d(_MaxPool):
    """The largest element of every window over height and width; the base class lists the arguments."""

    operator = staticmethod(ops.max_pool2d)


class MaxPool3d(_MaxPool):
    """The largest element of every window over depth, height and width; the base class lists the arguments."""

    operator = staticmethod(ops.max_pool3d)


class AvgPool1d(_AvgPool):
    """The mean of every window over one axis; the base class lists the arguments."""

    operator = staticmethod(ops.avg_pool1d)


class AvgPool2d(_AvgPool):
    """The mean of every window over height and width; the base class lists the arguments."""

    operator = staticmethod(ops.avg_pool2d)


class AvgPool3d(_AvgPool):
    """The mean of every window over depth, height and width; the base class lists the arguments."""

    operator = staticmethod(ops.avg_pool3d)


def _layout(permute: bool) -> ConvInputLayout:
    return ConvInputLayout.NCHW if permute else ConvInputLayout.NHWC
