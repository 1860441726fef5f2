"""Convolution layers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tidemill.dtype import DType
from tidemill.graph import ops
from tidemill.graph.layout import ConvInputLayout, FilterLayout
from tidemill.graph.type import DeviceRef
from tidemill.graph.value import TensorValue
from tidemill.graph.weight import Weight
from tidemill.nn.layer.module import Module

__all__ = ["Conv1D", "Conv2d", "Conv3D", "sides"]


@dataclass(frozen=True)
class _Form:
    """What the convolutions of all ranks are told."""

    kernel: tuple[int, ...]
    in_channels: int
    out_channels: int
    dtype: DType
    stride: int | Sequence[int]
    padding: int | Sequence[int]
    dilation: int | Sequence[int]
    num_groups: int
    device: DeviceRef | None
    has_bias: bool
    permute: bool
    name: str | None

    def filter_shape(self) -> tuple[int, ...]:
        """The filter's dims; ValueError if the groups do not divide the channels."""
        if self.num_groups < 1 or self.in_channels % self.num_groups or self.out_channels % self.num_groups:
            raise ValueError(
                f"{self.num_groups} groups must divide the {self.in_channels} channels that go in and the "
                f"{self.out_channels} that come out"
            )
        inner = self.in_channels // self.num_groups
        return (self.out_channels, inner, *self.kernel) if self.permute else (*self.kernel, inner, self.out_channels)


class _Conv(Module):
    """The weights of a convolution, and how its window moves."""

    def __init__(self, form: _Form) -> None:
        super().__init__()
        prefix = f"{form.name}." if form.name else ""
        self.stride = form.stride
        self.padding = sides(form.padding, len(form.kernel))
        self.dilation = form.dilation
        self.num_groups = form.num_groups
        self.permute = form.permute
        self.filter = Weight(f"{prefix}weight", form.dtype, form.filter_shape(), form.device)
        self.bias = Weight(f"{prefix}bias", form.dtype, (form.out_channels,), form.device) if form.has_bias else None

    def _arguments(self) -> dict[str, Any]:
        """What the operator is told beside the image and the filter."""
        return {
            "stride": self.stride,
            "dilation": self.dilation,
            "padding": self.padding,
            "groups": self.num_groups,
            "bias": self.bias,
            "input_layout": ConvInputLayout.NCHW if self.permute else ConvInputLayout.NHWC,
            "filter_layout": FilterLayout.FCRS if self.permute else FilterLayout.RSCF,
        }


class Conv1D(_Conv):
    """A convolution along one axis.

    By default channels come last. The runtime wants them first, so it keeps a rearranged copy of such a filter; with
    `permute` the filter is read as it lies in its file.

    Args:
        kernel_size: The filter's length.
        in_channels: The number of channels that go in.
        out_channels: The number of channels that come out.
        dtype: The element type of the weights.
        stride: How far one step goes.
        padding: Zeros on both sides, or (before, after).
        dilation: How far the filter's points are apart.
        num_groups: Into how many independent convolutions the channels are divided.
        device: Where the weights live.
        has_bias: Whether there is a bias.
        permute: Whether images and weights are laid out as torch's.
        name: Put before the weights' names.

    Weights: `weight` [kernel, in / groups, out], or [out, in / groups, kernel] with `permute`; `bias` [out].

    Raises:
        ValueError: The groups do not divide the channels.
    """

    def __init__(
        self,
        kernel_size: int,
        in_channels: int,
        out_channels: int,
        dtype: DType,
        stride: int = 1,
        padding: int | tuple[int, int] = 0,
        dilation: int = 1,
        num_groups: int = 1,
        device: DeviceRef | None = None,
        has_bias: bool = False,
        permute: bool = False,
        name: str | None = None,
    ) -> None:
        kernel, both = (kernel_size,), padding if isinstance(padding, int) else tuple(padding)
        steps = (stride, both, dilation, num_groups)
        super().__init__(_Form(kernel, in_channels, out_channels, dtype, *steps, device, has_bias, permute, name))

    def __call__(self, x: TensorValue) -> TensorValue:
        """[batch, length, in] -> [batch, new length, out]; with `permute` the channels are on axis 1."""
        return ops.conv1d(x, self.filter, **self._arguments())


class Conv2d(_Conv):
    """A convolution over height and width; see `Conv1D` for the layouts.

    Args:
        kernel_size: The filter's height and width; one number for both.
        in_channels: The number of channels that go in.
        out_channels: The number of channels that come out.
        dtype: The element type of the weights.
        stride: How far one step goes along each axis.
        padding: Zeros on all sides, or (height, width), or (top, bottom, left, right).
        dilation: How far the filter's points are apart along each axis.
        num_groups: Into how many independent convolutions the channels are divided.
        device: Where the weights live.
        has_bias: Whether there is a bias.
        permute: Whether images and weights are laid out as torch's.
        name: Put before the weights' names.

    Weights: `weight` [height, width, in / groups, out], or [out, in / groups, height, width] with `permute`; `bias`
    [out].

    Raises:
        ValueError: The groups do not divide the channels.
    """

    def __init__(
        self,
        kernel_size: int | tuple[int, int],
        in_channels: int,
        out_channels: int,
        dtype: DType,
        stride: int | tuple[int, int] = 1,
        padding: int | tuple[int, int] | tuple[int, int, int, int] = 0,
        dilation: int | tuple[int, int] = 1,
        num_groups: int = 1,
        device: DeviceRef | None = None,
        has_bias: bool = False,
        permute: bool = False,
        name: str | None = None,
    ) -> None:
        kernel = (kernel_size, kernel_size) if isinstance(kernel_size, int) else tuple(kernel_size)
        steps = (stride, padding, dilation, num_groups)
        super().__init__(_Form(kernel, in_channels, out_channels, dtype, *steps, device, has_bias, permute, name))

    def __call__(self, x: TensorValue) -> TensorValue:
        """[batch, height, width, in] -> [batch, new height, new width, out]; channels on axis 1 with `permute`."""
        return ops.conv2d(x, self.filter, **self._arguments())


class Conv3D(_Conv):
    """A convolution over depth, height and width; see `Conv1D` for the layouts.

    Args:
        depth: The filter's depth.
        height: The filter's height.
        width: The filter's width.
        in_channels: The number of channels that go in.
        out_channels: The number of channels that come out.
        dtype: The element type of the weights.
        stride: How far one step goes along each axis.
        padding: Zeros on all sides, or (depth, height, width), or before and after each axis in turn.
        dilation: How far the filter's points are apart along each axis.
        num_groups: Into how many independent convolutions the channels are divided.
        device: Where the weights live.
        has_bias: Whether there is a bias.
        permute: Whether images and weights are laid out as torch's.
        name: Put before the weights' names.

    Weights: `weight` [depth, height, width, in / groups, out], or [out, in / groups, depth, height, width] with
    `permute`; `bias` [out].

    Raises:
        ValueError: The groups do not divide the channels.
    """

    def __init__(
        self,
        depth: int,
        height: int,
        width: int,
        in_channels: int,
        out_channels: int,
        dtype: DType,
        stride: int | tuple[int, int, int] = 1,
        padding: int | tuple[int, int, int] | tuple[int, int, int, int, int, int] = 0,
        dilation: int | tuple[int, int, int] = 1,
        num_groups: int = 1,
        device: DeviceRef | None = None,
        has_bias: bool = False,
        permute: bool = False,
        name: str | None = None,
    ) -> None:
        kernel, steps = (depth, height, width), (stride, padding, dilation, num_groups)
        super().__init__(_Form(kernel, in_channels, out_channels, dtype, *steps, device, has_bias, permute, name))

    def __call__(self, x: TensorValue) -> TensorValue:
        """[batch, depth, height, width, in] -> [..., out], with the axes' new sizes; channels first with `permute`."""
        return ops.conv3d(x, self.filter, **self._arguments())


def sides(padding: int | Sequence[int], rank: int) -> tuple[int, ...]:
    """What is added before and after each of `rank` axes in turn, from one number, one per axis, or all of them.

    Raises:
        ValueError: There is another number of entries.
    """
    sizes = (padding,) * rank if isinstance(padding, int) else tuple(padding)
    if len(sizes) == 2 * rank:
        return sizes
    if len(sizes) != rank:
        raise ValueError(f"padding {padding} must be one number, {rank} or {2 * rank}")
    return tuple(size for size in sizes for _ in range(2))
