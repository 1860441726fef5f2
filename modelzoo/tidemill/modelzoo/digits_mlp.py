"""An 8x8 picture of a digit to ten scores: the smallest trained network, 97 % right on scikit-learn's digits.

Its weights (`fc1`, `fc2`, PyTorch's layout) were trained by scikit-learn for this project and lie beside this file.
"""

from __future__ import annotations

from os import PathLike
from pathlib import Path

import numpy as np

from tidemill import nn
from tidemill.dtype import DType
from tidemill.graph import DeviceRef, TensorType, TensorValue, ops
from tidemill.modelzoo.zoo_model import Inputs

__all__ = ["DigitsMLP", "build", "example_inputs"]


class DigitsMLP(nn.Module):
    """fc2(relu(fc1(pixels)))."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1 = nn.Linear(64, 32, DType.float32, has_bias=True)
        self.fc2 = nn.Linear(32, 10, DType.float32, has_bias=True)

    def __call__(self, pixels: TensorValue) -> dict[str, TensorValue]:
        """float32 [batch, 64], 0 for paper to 1 for ink -> logits [batch, 10]."""
        return {"logits": self.fc2(ops.relu(self.fc1(pixels)))}


def build(repository: Path, weights: str | PathLike[str] | None = None) -> None:
    """Write `repository/digits-mlp/1`."""
    pixels = TensorType(DType.float32, ["batch", 64], DeviceRef.CPU())
    bundle = DigitsMLP().bundle(
        pixels, weights=weights or Path(__file__).with_suffix(".safetensors"), name="digits-mlp"
    )
    bundle.write(repository / "digits-mlp" / "1")


def example_inputs() -> Inputs:
    """A vertical stroke, which is a 1."""
    picture = np.zeros((8, 8), np.float32)
    picture[:, 3:5] = 1.0
    return {"pixels": picture.reshape(1, 64)}
