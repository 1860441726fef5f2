"""Transposed convolution layers along one axis."""

from __future__ import annotations

from collections.abc import Sequence

from tidemill.dtype import DType
from tidemill.graph import ops
from tidemill.graph.layout import ConvInputLayout, FilterLayout
from tidemill.graph.type import DeviceRef
from tidemill.graph.value import TensorValue
from tidemill.graph.weight import Weight
from tidemill.nn.layer.module import Module

__all__ = ["ConvTranspose1d", "WeightNormConvTranspose1d"]


class _ConvTranspose(Module):
    """How the window of a transposed convolution moves.

    The seed also takes steps as for two axes, of which the first has size 1; only the last one matters.
    """

    stride: int
    padding: tuple[int, int]
    dilation: int
    output_padding: int
    permute: bool

    def _set_steps(
        self,
        stride: int | Sequence[int],
        padding: int | Sequence[int],
        dilation: int | Sequence[int],
        output_padding: int | Sequence[int],
    ) -> None:
        self.stride, self.dilation, self.output_padding = _last(stride), _last(dilation), _last(output_padding)
        self.padding = (padding, padding) if isinstance(padding, int) else (padding[-2], padding[-1])

    def _convolve(self, x: TensorValue, weight: TensorValue, bias: TensorValue | None) -> TensorValue:
        return ops.conv1d_transpose(
            x,
            weight,
            stride=self.stride,
            dilation=self.dilation,
            padding=self.padding,
            output_paddings=self.output_padding,
            bias=bias,
            input_layout=ConvInputLayout.NCHW if self.permute else ConvInputLayout.NHWC,
            filter_layout=FilterLayout.CFRS if self.permute else FilterLayout.RSCF,
        )


class ConvTranspose1d(_ConvTranspose):
    """A transposed convolution along one axis.

    By default channels come last. The runtime wants them first, so it keeps a rearranged copy of such a filter; with
    `permute` the filter is read as it lies in its file.

    Args:
        length: The filter's length.
        in_channels: The number of channels that go in.
        out_channels: The number of channels that come out.
        dtype: The element type of the weights.
        stride: How far one element moves the filter.
        padding: What is cut off both ends of the result, or (before, after).
        dilation: How far the filter's points are apart.
        output_padding: What is added at the end again.
        device: Where the weights live.
        has_bias: Whether there is a bias.
        permute: Whether sequences and weights are laid out as torch's.
        name: Put before the weights' names.

    Weights: `weight` [length, out, in], or [in, out, length] with `permute`; `bias` [out].
    """

    def __init__(
        self,
        length: int,
        in_channels: int,
        out_channels: int,
        dtype: DType,
        stride: int | Sequence[int] = 1,
        padding: int | Sequence[int] = 0,
        dilation: int | Sequence[int] = 1,
        output_padding: int | Sequence[int] = 0,
        device: DeviceRef | None = None,
        has_bias: bool = False,
        permute: bool = False,
        name: str | None = None,
    ) -> None:
        super().__init__()
        prefix = f"{name}." if name else ""
        self.permute = permute
        self._set_steps(stride, padding, dilation, output_padding)
        shape = (in_channels, out_channels, length) if permute else (length, out_channels, in_channels)
        self.weight = Weight(f"{prefix}weight", dtype, shape, device)
        self.bias = Weight(f"{prefix}bias", dtype, (out_channels,), device) if has_bias else None

    def __call__(self, x: TensorValue) -> TensorValue:
        """[batch, length, in] -> [batch, new length, out]; with `permute` the channels are on axis 1."""
        return self._convolve(x, self.weight, self.bias)


class WeightNormConvTranspose1d(_ConvTranspose):
    """A transposed convolution whose filter is given as directions and lengths (Salimans and Kingma, 2016).

    The filter weight_g * weight_v / |weight_v|, with the norm of each input channel, is computed when the model is
    loaded; the runtime keeps it beside the file's weights.

    Args:
        length: The filter's length.
        in_channels: The number of channels that go in.
        out_channels: The number of channels that come out.
        dtype: The element type of the weights.
        stride: How far one element moves the filter.
        padding: What is cut off both ends of the result, or (before, after).
        dilation: How far the filter's points are apart.
        output_padding: What is added at the end again.
        device: Where the weights live.
        has_bias: Whether there is a bias.
        permute: Whether sequences and weights are laid out as torch's.
        name: Put before the weights' names.

    Weights: `weight_g` [in, 1, 1]; `weight_v` [length, out, in], or [in, out, length] with `permute`; `bias` [out].
    """

    def __init__(
        self,
        length: int,
        in_channels: int,
        out_channels: int,
        dtype: DType,
        stride: int | Sequence[int] = 1,
        padding: int | Sequence[int] = 0,
        dilation: int | Sequence[int] = 1,
        output_padding: int | Sequence[int] = 0,
        device: DeviceRef | None = None,
        has_bias: bool = False,
        permute: bool = False,
        name: str | None = None,
    ) -> None:
        super().__init__()
        prefix = f"{name}." if name else ""
        self.permute = permute
        self.in_channels = in_channels
        self._set_steps(stride, padding, dilation, output_padding)
        shape = (in_channels, out_channels, length) if permute else (length, out_channels, in_channels)
        self.weight_g = Weight(f"{prefix}weight_g", dtype, (in_channels, 1, 1), device)
        self.weight_v = Weight(f"{prefix}weight_v", dtype, shape, device)
        self.bias = Weight(f"{prefix}bias", dtype, (out_channels,), device) if has_bias else None

    def __call__(self, x: TensorValue) -> TensorValue:
        """[batch, length, in] -> [batch, new length, out]; with `permute` the channels are on axis 1."""
        return self._convolve(x, self._filter(), self.bias)

    def _filter(self) -> TensorValue:
        first, second = (2, 1) if self.permute else (1, 0)
        squares = ops.sum(ops.sum(self.weight_v * self.weight_v, axis=first), axis=second)
        shape = (self.in_channels, 1, 1) if self.permute else (1, 1, self.in_channels)
        return self.weight_v * (ops.reshape(self.weight_g, shape) / ops.sqrt(squares))


def _last(sizes: int | Sequence[int]) -> int:
    return sizes if isinstance(sizes, int) else sizes[-1]
