"""Silero VAD: is somebody speaking in these 32 ms? A spectrum, four convolutions and an LSTM cell (MIT).

The caller sends chunk after chunk of 16 kHz audio under one `sequence_id`, and the server keeps what the model made of
the last one. Who would rather keep it sends it along: what the last answer gave as `next_...`, zeros to begin with.
Names are those of the scripted model (`silero_vad.jit`). The wheel's safetensors file holds other, older values.
"""

from __future__ import annotations

from os import PathLike
from pathlib import Path

import numpy as np

from tidemill import nn
from tidemill.dtype import DType
from tidemill.graph import ConvInputLayout, DeviceRef, FilterLayout, TensorType, TensorValue, Weight, ops
from tidemill.modelzoo.package_files import needed_weights, package_file
from tidemill.modelzoo.zoo_model import Inputs
from tidemill.weights import open_checkpoint

__all__ = ["CHUNK", "CONTEXT", "HIDDEN", "SileroVAD", "build", "example_inputs"]

_SETTINGS = """\
sequence:
  state:
    - {input: context, output: next_context}
    - {input: hidden, output: next_hidden}
    - {input: cell, output: next_cell}
"""
CHUNK = 512
"""Samples of one call: 32 ms."""
CONTEXT = 64
"""Samples of the chunk before that are looked at again."""
HIDDEN = 128

_WINDOW, _HOP = 256, 128
_BINS = _WINDOW // 2 + 1


class STFT(nn.Module):
    """The magnitude of a short-time Fourier transform, as a convolution with cosines and sines."""

    def __init__(self) -> None:
        super().__init__()
        self.forward_basis_buffer = Weight("forward_basis_buffer", DType.float32, (2 * _BINS, 1, _WINDOW))

    def __call__(self, audio: TensorValue) -> TensorValue:
        """[batch, samples] -> [batch, bins, frames]."""
        padded = ops.unsqueeze(ops.pad(audio, [0, 0, 0, _WINDOW // 4], mode="reflect"), 1)
        spectrum = ops.conv1d(
            padded,
            self.forward_basis_buffer,
            stride=_HOP,
            input_layout=ConvInputLayout.NCHW,
            filter_layout=FilterLayout.FCRS,
        )
        real, imaginary = ops.chunk(spectrum * spectrum, 2, axis=1)
        return ops.sqrt(real + imaginary)


class Block(nn.Module):
    """relu(conv(x)); the convolution stands for several that were one while it was trained."""

    def __init__(self, channels_in: int, channels_out: int, stride: int) -> None:
        super().__init__()
        shape = (3, channels_in, channels_out)
        self.reparam_conv = nn.Conv1D(*shape, DType.float32, stride, padding=1, has_bias=True, permute=True)

    def __call__(self, x: TensorValue) -> TensorValue:
        """[batch, channels_in, frames] -> [batch, channels_out, frames / stride]."""
        return ops.relu(self.reparam_conv(x))


class Decoder(nn.Module):
    """One step of the LSTM, then a probability."""

    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.LSTMCell(HIDDEN, HIDDEN)
        head = nn.Conv1D(1, HIDDEN, 1, DType.float32, has_bias=True, permute=True)
        self.decoder = nn.LayerList([nn.MissingLayer(0), nn.MissingLayer(1), head])

    def __call__(
        self, features: TensorValue, state: tuple[TensorValue, TensorValue]
    ) -> tuple[TensorValue, TensorValue, TensorValue]:
        """[batch, 128] and the state -> probability [batch] and the next state."""
        hidden, cell = self.rnn(features, state)
        score = self.decoder[2](ops.unsqueeze(ops.relu(hidden), -1))
        return ops.sigmoid(ops.squeeze(ops.squeeze(score, -1), -1)), hidden, cell


class SileroVAD(nn.Module):
    """Spectrum, encoder, decoder."""

    def __init__(self) -> None:
        super().__init__()
        self.stft = STFT()
        sizes = [(_BINS, 128, 1), (128, 64, 2), (64, 64, 2), (64, HIDDEN, 1)]
        self.encoder = nn.Sequential([Block(*size) for size in sizes])
        self.decoder = Decoder()

    def __call__(
        self, audio: TensorValue, context: TensorValue, hidden: TensorValue, cell: TensorValue
    ) -> dict[str, TensorValue]:
        """float32 [batch, 512] and the state -> probability [batch] and the state for the next chunk."""
        samples = ops.concat([context, audio], axis=1)
        features = ops.squeeze(self.encoder(self.stft(samples)), -1)
        probability, next_hidden, next_cell = self.decoder(features, (hidden, cell))
        return {
            "probability": probability,
            "next_context": audio[:, CHUNK - CONTEXT :],
            "next_hidden": next_hidden,
            "next_cell": next_cell,
        }


def build(repository: Path, weights: str | PathLike[str] | None = None) -> None:
    """Write `repository/silero-vad/1`, and the settings that make it a model of sequences.

    Raises:
        ModuleNotFoundError: The package that carries the trained weights is not installed.
    """
    model = SileroVAD()
    checkpoint = (
        open_checkpoint(weights)
        if weights
        else open_checkpoint(package_file("silero_vad", "data/silero_vad.jit"), rename={"**": "_model.**"})
    )
    types = [TensorType(DType.float32, ["batch", size], DeviceRef.CPU()) for size in (CHUNK, CONTEXT, HIDDEN, HIDDEN)]
    bundle = model.bundle(*types, weights=needed_weights(model, checkpoint), name="silero-vad")
    bundle.write(repository / "silero-vad" / "1")
    (repository / "silero-vad" / "model.yaml").write_text(_SETTINGS, encoding="utf-8")


def example_inputs() -> Inputs:
    """The first chunk of a silence."""
    sizes = {"audio": CHUNK, "context": CONTEXT, "hidden": HIDDEN, "cell": HIDDEN}
    return {name: np.zeros((1, size), np.float32) for name, size in sizes.items()}
