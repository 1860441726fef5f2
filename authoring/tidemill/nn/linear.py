"""Linear: the affine map."""

from __future__ import annotations

from typing import Any

from tidemill.dtype import DType
from tidemill.graph import ops
from tidemill.graph.type import DeviceRef
from tidemill.graph.value import TensorValue
from tidemill.graph.weight import Weight
from tidemill.nn.clamp import clamp
from tidemill.nn.layer.module import Module

__all__ = ["Linear", "refuse_quantization"]


class Linear(Module):
    """x @ weight.T + bias.

    The weight is read as it lies in its file. `clip_weight` changes that: the runtime then keeps a clipped copy.

    Args:
        in_dim: The last dim of the input.
        out_dim: The last dim of the output.
        dtype: The element type of the weights; the input may have another that it promotes with.
        device: Where the weights live.
        has_bias: Whether there is a bias.
        quantization_encoding: Must be None: packed weights are not computed with.
        quant_config: Must be None: scaled weights are not computed with.
        name: Put before the weights' names: "proj" gives "proj.weight".
        clip_weight: Clip the weight to [-clip_weight, clip_weight] before use.

    Weights: `weight` [out_dim, in_dim], `bias` [out_dim].

    Raises:
        NotImplementedError: A quantisation is asked for.
    """

    def __init__(
        self,
        in_dim: int,
        out_dim: int,
        dtype: DType,
        device: DeviceRef | None = None,
        has_bias: bool = False,
        quantization_encoding: Any = None,
        quant_config: Any = None,
        name: str | None = None,
        clip_weight: float | None = None,
    ) -> None:
        super().__init__()
        refuse_quantization("Linear", quantization_encoding, quant_config)
        prefix = f"{name}." if name else ""
        self.device = device
        self.clip_weight = clip_weight
        self.weight = Weight(f"{prefix}weight", dtype, (out_dim, in_dim), device)
        self.bias = Weight(f"{prefix}bias", dtype, (out_dim,), device) if has_bias else None

    def __call__(self, x: TensorValue) -> TensorValue:
        """[..., in_dim] -> [..., out_dim]."""
        weight = clamp(self.weight, -self.clip_weight, self.clip_weight) if self.clip_weight else self.weight
        return ops.linear(x, weight, self.bias)


def refuse_quantization(layer: str, quantization_encoding: Any, quant_config: Any = None) -> None:
    """NotImplementedError if either is given, saying what to do instead."""
    asked = {"quantization_encoding": quantization_encoding, "quant_config": quant_config}
    for name, value in asked.items():
        if value is not None:
            raise NotImplementedError(
                f"{layer}({name}={value}): layers compute with plain numbers. Load the weights dequantised and let "
                "the build quantise the finished model, or use ops.dequantize or ops.qmatmul on a packed Weight."
            )
