"""Linear: the affine map."""

from __future__ import annotations

from tidemill.dtype import DType
from tidemill.graph import ops
from tidemill.graph.type import DeviceRef
from tidemill.graph.value import TensorValue
from tidemill.graph.weight import Weight
from tidemill.nn.layer.module import Module

__all__ = ["Linear"]


class Linear(Module):
    """x @ weight.T + bias.

    Args:
        in_dim: The last dim of the input.
        out_dim: The last dim of the output.
        dtype: The element type of input, weights and output.
        device: Where the weights live.
        has_bias: Whether there is a bias.
        name: Put before the weights' names: "proj" gives "proj.weight".

    Weights: `weight` [out_dim, in_dim], `bias` [out_dim].
    """

    def __init__(
        self,
        in_dim: int,
        out_dim: int,
        dtype: DType,
        device: DeviceRef | None = None,
        has_bias: bool = False,
        *,
        name: str | None = None,
    ) -> None:
        super().__init__()
        prefix = f"{name}." if name else ""
        self.weight = Weight(f"{prefix}weight", dtype, (out_dim, in_dim), device)
        self.bias = Weight(f"{prefix}bias", dtype, (out_dim,), device) if has_bias else None

    def __call__(self, x: TensorValue) -> TensorValue:
        """[..., in_dim] -> [..., out_dim]."""
        return ops.linear(x, self.weight, self.bias)
