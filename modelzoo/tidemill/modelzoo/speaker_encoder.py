"""Resemblyzer's speaker encoder: 1.6 s of speech to 256 numbers that tell voices apart (Wan et al., 2018; Apache-2.0).

Names are those of the checkpoint's `model_state`. Voices are alike as their embeddings' dot product is near 1.
"""

from __future__ import annotations

from os import PathLike
from pathlib import Path

import numpy as np

from tidemill import nn
from tidemill.dtype import DType
from tidemill.graph import DeviceRef, TensorType, TensorValue, ops
from tidemill.modelzoo.package_files import needed_weights, package_file
from tidemill.modelzoo.zoo_model import Inputs
from tidemill.weights import open_checkpoint

__all__ = ["SpeakerEncoder", "build", "example_inputs"]

MEL_CHANNELS = 40
FRAMES = 160
"""Frames of 10 ms that the model was trained on; it takes any number."""


class SpeakerEncoder(nn.Module):
    """Three LSTM layers; the last state, projected, without its negative part, scaled to length 1."""

    def __init__(self, hidden: int = 256) -> None:
        super().__init__()
        self.lstm = nn.LSTM(MEL_CHANNELS, hidden, num_layers=3, batch_first=True)
        self.linear = nn.Linear(hidden, hidden, DType.float32, has_bias=True)

    def __call__(self, mels: TensorValue) -> dict[str, TensorValue]:
        """float32 [batch, frames, 40], powers of mel bands -> embedding [batch, 256]."""
        _, (hidden, _) = self.lstm(mels)
        raw = ops.relu(self.linear(hidden[-1]))
        length = ops.sqrt(ops.sum(raw * raw))
        return {"embedding": raw / ops.max(length, 1e-12)}


def build(repository: Path, weights: str | PathLike[str] | None = None) -> None:
    """Write `repository/speaker-encoder/1`.

    Raises:
        ModuleNotFoundError: The package that carries the trained weights is not installed.
    """
    model = SpeakerEncoder()
    checkpoint = (
        open_checkpoint(weights)
        if weights
        else open_checkpoint(package_file("resemblyzer", "pretrained.pt"), rename={"**": "model_state.**"})
    )
    mels = TensorType(DType.float32, ["batch", "frames", MEL_CHANNELS], DeviceRef.CPU())
    bundle = model.bundle(mels, weights=needed_weights(model, checkpoint), name="speaker-encoder")
    bundle.write(repository / "speaker-encoder" / "1")


def example_inputs() -> Inputs:
    """Noise of the right size."""
    return {"mels": np.random.default_rng(0).random((1, FRAMES, MEL_CHANNELS), dtype=np.float32)}
