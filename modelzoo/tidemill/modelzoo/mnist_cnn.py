"""A handwritten digit to ten scores: three convolutions and two dense layers, trained on MNIST (LeCun et al., 1998).

Weights and names are those of the package digit-recognizer-py (MIT).
"""

from __future__ import annotations

from os import PathLike
from pathlib import Path

import numpy as np

from tidemill import nn
from tidemill.dtype import DType
from tidemill.graph import DeviceRef, TensorType, TensorValue, ops
from tidemill.modelzoo.package_files import package_file
from tidemill.modelzoo.zoo_model import Inputs

__all__ = ["MnistCNN", "build", "example_inputs"]

_MEAN, _DEVIATION = 0.1307, 0.3081


class ReLU(nn.Module):
    """max(x, 0), as a numbered step."""

    def __call__(self, x: TensorValue) -> TensorValue:
        """[...] -> [...]."""
        return ops.relu(x)


class MnistCNN(nn.Module):
    """Conv, relu, pool three times; then dense, relu, dense."""

    def __init__(self) -> None:
        super().__init__()
        self.conv_layers = nn.Sequential([*_stage(1, 32), *_stage(32, 64), *_stage(64, 128)])
        self.fc_layers = nn.Sequential([_linear(128 * 3 * 3, 256), ReLU(), _linear(256, 10)])

    def __call__(self, image: TensorValue) -> dict[str, TensorValue]:
        """float32 [batch, 1, 28, 28], (ink - 0.1307) / 0.3081 with ink from 0 to 1 -> logits [batch, 10]."""
        return {"logits": self.fc_layers(ops.flatten(self.conv_layers(image), 1))}


def build(repository: Path, weights: str | PathLike[str] | None = None) -> None:
    """Write `repository/mnist-cnn/1`.

    Raises:
        ModuleNotFoundError: The package that carries the trained weights is not installed.
    """
    image = TensorType(DType.float32, ["batch", 1, 28, 28], DeviceRef.CPU())
    trained = weights or package_file("digit_recognizer", "models/handwriting_model.pth", "digit-recognizer-py")
    MnistCNN().bundle(image, weights=trained, name="mnist-cnn").write(repository / "mnist-cnn" / "1")


def example_inputs() -> Inputs:
    """A vertical stroke, which is a 1."""
    ink = np.zeros((1, 1, 28, 28), np.float32)
    ink[:, :, 5:23, 13:15] = 1.0
    return {"image": ((ink - _MEAN) / _DEVIATION).astype(np.float32)}


def _stage(channels_in: int, channels_out: int) -> list[nn.Module]:
    convolution = nn.Conv2d(3, channels_in, channels_out, DType.float32, padding=1, has_bias=True, permute=True)
    return [convolution, ReLU(), nn.MaxPool2d(2, permute=True)]


def _linear(in_dim: int, out_dim: int) -> nn.Linear:
    return nn.Linear(in_dim, out_dim, DType.float32, has_bias=True)
