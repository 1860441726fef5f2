"""Gated feed-forward layers, as transformers have them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tidemill.dtype import DType
from tidemill.graph import ops
from tidemill.graph.quantization import QuantizationEncoding
from tidemill.graph.type import DeviceRef
from tidemill.graph.value import TensorValue
from tidemill.graph.weight import Weight
from tidemill.nn.activation import activation_function_from_name
from tidemill.nn.layer.module import Module
from tidemill.nn.linear import Linear

__all__ = ["MLP", "FusedMLP"]


class MLP(Module):
    """down_proj(activation(gate_proj(x)) * up_proj(x)) (Shazeer, 2020).

    Args:
        dtype: The element type of the weights.
        quantization_encoding: How the checkpoint packs the weights; None for plain numbers.
        hidden_dim: The last dim of input and output.
        feed_forward_length: The last dim in between.
        devices: Where the weights live; the first counts.
        linear_cls: What makes a projection, called as `Linear` is, by keywords.
        has_bias: Whether the projections have biases.
        activation_function: "silu", "gelu", "gelu_tanh", "gelu_quick", "relu", "tanh" or "sigmoid".
        quant_config: Passed to `linear_cls`; `Linear` wants None.

    Weights: those of `gate_proj`, `down_proj` and `up_proj`.
    """

    def __init__(
        self,
        dtype: DType,
        quantization_encoding: QuantizationEncoding | None,
        hidden_dim: int,
        feed_forward_length: int,
        devices: Sequence[DeviceRef],
        linear_cls: Callable[..., Module] = Linear,
        has_bias: bool = False,
        activation_function: str = "silu",
        quant_config: Any = None,
    ) -> None:
        super().__init__()
        self.activation_function = activation_function_from_name(activation_function)

        def projection(in_dim: int, out_dim: int) -> Module:
            return linear_cls(
                in_dim=in_dim,
                out_dim=out_dim,
                dtype=dtype,
                device=devices[0] if devices else None,
                has_bias=has_bias,
                quantization_encoding=quantization_encoding,
                quant_config=quant_config,
            )

        self.gate_proj = projection(hidden_dim, feed_forward_length)
        self.down_proj = projection(feed_forward_length, hidden_dim)
        self.up_proj = projection(hidden_dim, feed_forward_length)

    def __call__(self, x: TensorValue) -> TensorValue:
        """[..., hidden_dim] -> [..., hidden_dim]."""
        gate = self.activation_function(self.gate_proj(x))
        hidden: TensorValue = self.down_proj(gate * self.up_proj(x))
        return hidden


class FusedMLP(Module):
    """An MLP whose checkpoint holds the gate's and the up projection's weights as one.

    Args:
        dtype: The element type of the weights.
        hidden_dim: The last dim of input and output.
        feed_forward_length: The last dim in between.
        devices: Where the weights live; one.
        activation_function: As in `MLP`.
        linear_cls: What makes a projection, called as `Linear` is, by keywords; None for plain weights.

    Weights: `gate_up_proj_fused` [2 * feed_forward_length, hidden_dim], the gate first, and `down_proj.weight`; with
    `linear_cls` those of `gate_up_proj` and `down_proj`.

    Raises:
        ValueError: There is not exactly one device.
    """

    def __init__(
        self,
        dtype: DType,
        hidden_dim: int,
        feed_forward_length: int,
        devices: Sequence[DeviceRef],
        activation_function: str = "silu",
        linear_cls: Callable[..., Module] | None = None,
    ) -> None:
        super().__init__()
        if len(devices) != 1:
            raise ValueError(f"FusedMLP requires exactly one device, got {list(devices)}")
        self.activation_function = activation_function_from_name(activation_function)
        self.linear_cls = linear_cls
        if linear_cls is None:
            shape = (2 * feed_forward_length, hidden_dim)
            self.gate_up_proj_fused = Weight("gate_up_proj_fused", dtype, shape, devices[0])
        else:
            place = {"dtype": dtype, "device": devices[0]}
            self.gate_up_proj = linear_cls(in_dim=hidden_dim, out_dim=2 * feed_forward_length, **place)
        make = linear_cls or Linear
        self.down_proj = make(in_dim=feed_forward_length, out_dim=hidden_dim, dtype=dtype, device=devices[0])

    def __call__(self, x: TensorValue) -> TensorValue:
        """[..., hidden_dim] -> [..., hidden_dim]."""
        both = self.gate_up_proj(x) if self.linear_cls else ops.linear(x, self.gate_up_proj_fused)
        gate, up = ops.chunk(both, 2, axis=-1)
        hidden: TensorValue = self.down_proj(self.activation_function(gate) * up)
        return hidden
