"""The gated MLP of the README: the smallest model with a repeated part."""

from __future__ import annotations

from os import PathLike
from pathlib import Path

import numpy as np

from tidemill import nn
from tidemill.dtype import DType
from tidemill.graph import DeviceRef, TensorType, TensorValue, Weight, ops
from tidemill.modelzoo.zoo_model import Inputs

__all__ = ["MLP", "build", "example_inputs"]


class Linear(nn.Module):
    """x @ weight.T with a weight [in_dims, out_dims], as the example has it."""

    def __init__(self, in_dims: int, out_dims: int) -> None:
        super().__init__()
        self.weight = Weight("weight", DType.float32, (in_dims, out_dims), DeviceRef.CPU())

    def __call__(self, x: TensorValue) -> TensorValue:
        """[..., out_dims] -> [..., in_dims]."""
        return x @ self.weight.T


class MLP(nn.Module):
    """down(silu(gate(x)) + up(x))."""

    def __init__(self) -> None:
        super().__init__()
        self.up = Linear(5, 10)
        self.gate = Linear(5, 10)
        self.down = Linear(10, 5)

    def __call__(self, x: TensorValue) -> TensorValue:
        """[batch, 10] -> [batch, 10]."""
        return self.down(ops.silu(self.gate(x)) + self.up(x))


def build(repository: Path, weights: str | PathLike[str] | None = None) -> None:
    """Write `repository/mlp/1`; by default the weights are random numbers from a fixed seed."""
    model = MLP()
    random = np.random.default_rng(0)
    model.load_state_dict(
        {name: random.standard_normal(value.shape, np.float32) for name, value in model.state_dict().items()}
    )
    input_type = TensorType(DType.float32, ["batch", 10], DeviceRef.CPU())
    model.bundle(input_type, weights=weights, name="mlp").write(repository / "mlp" / "1")


def example_inputs() -> Inputs:
    """Ten ones."""
    return {"x": np.ones((1, 10), np.float32)}
