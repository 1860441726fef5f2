"""Whisper: thirty seconds of speech to text, an encoder and a decoder (Radford et al., 2022).

Names are OpenAI's. No package carries weights; give `build` a checkpoint. The default is Whisper-tiny. The encoder runs
once for a recording, the decoder once for each token, on all tokens so far.
"""

from __future__ import annotations

from dataclasses import dataclass
from os import PathLike
from pathlib import Path

import numpy as np

from tidemill import nn
from tidemill.dtype import DType
from tidemill.graph import DeviceRef, TensorType, TensorValue, Weight, ops
from tidemill.modelzoo.package_files import needed_weights, required_weights
from tidemill.modelzoo.zoo_model import Inputs
from tidemill.weights import open_checkpoint

__all__ = ["Config", "Decoder", "Encoder", "build", "example_inputs"]


@dataclass(frozen=True)
class Config:
    """The sizes."""

    mels: int = 80
    audio_length: int = 1500
    text_length: int = 448
    vocabulary: int = 51865
    size: int = 384
    heads: int = 6
    layers: int = 4


class Attention(nn.Module):
    """Every position of `x` looks at those of `source`; keys have no bias."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.heads = config.heads
        self.query = _linear(config.size, config.size)
        self.key = nn.Linear(config.size, config.size, DType.float32)
        self.value = _linear(config.size, config.size)
        self.out = _linear(config.size, config.size)

    def __call__(self, x: TensorValue, source: TensorValue, causal: bool = False) -> TensorValue:
        """[batch, length, size], [batch, source length, size] -> [batch, length, size]."""
        query, key, value = self._split(self.query(x)), self._split(self.key(source)), self._split(self.value(source))
        mixed = ops.attention(query, key, value, causal=causal)
        return self.out(mixed.permute([0, 2, 1, 3]).reshape(x.shape))

    def _split(self, x: TensorValue) -> TensorValue:
        batch, length, size = x.shape
        return x.reshape([batch, length, self.heads, size // self.heads]).permute([0, 2, 1, 3])


class EncoderBlock(nn.Module):
    """Attention and feed-forward, each on what is normalised, each added."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.attn, self.attn_ln = Attention(config), _norm(config)
        self.mlp, self.mlp_ln = _mlp(config), _norm(config)

    def __call__(self, x: TensorValue) -> TensorValue:
        """[batch, length, size] -> the same."""
        normed = self.attn_ln(x)
        attended = x + self.attn(normed, normed)
        changed: TensorValue = self.mlp(self.mlp_ln(attended))
        return attended + changed


class DecoderBlock(nn.Module):
    """The same, with a look at the speech in between."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.attn, self.attn_ln = Attention(config), _norm(config)
        self.cross_attn, self.cross_attn_ln = Attention(config), _norm(config)
        self.mlp, self.mlp_ln = _mlp(config), _norm(config)

    def __call__(self, x: TensorValue, speech: TensorValue) -> TensorValue:
        """[batch, length, size], [batch, audio_length, size] -> [batch, length, size]."""
        normed = self.attn_ln(x)
        x = x + self.attn(normed, normed, causal=True)
        x = x + self.cross_attn(self.cross_attn_ln(x), speech)
        changed: TensorValue = self.mlp(self.mlp_ln(x))
        return x + changed


class Encoder(nn.Module):
    """Two convolutions over time, positions added, blocks, norm."""

    def __init__(self, config: Config | None = None) -> None:
        super().__init__()
        config = config or Config()
        self.conv1 = _conv(config.mels, config.size)
        self.conv2 = _conv(config.size, config.size, stride=2)
        self.positional_embedding = Weight("positional_embedding", DType.float32, (config.audio_length, config.size))
        self.blocks = nn.Sequential([EncoderBlock(config) for _ in range(config.layers)])
        self.ln_post = _norm(config)

    def __call__(self, mel: TensorValue) -> dict[str, TensorValue]:
        """float32 [batch, mels, 2 * audio_length], log powers -> speech [batch, audio_length, size]."""
        x = ops.gelu(self.conv2(ops.gelu(self.conv1(mel))))
        return {"speech": self.ln_post(self.blocks(ops.transpose(x, 1, 2) + self.positional_embedding))}


class Decoder(nn.Module):
    """Words and positions added, blocks that look at the speech, norm, and the embedding again to choose a token."""

    def __init__(self, config: Config | None = None) -> None:
        super().__init__()
        config = config or Config()
        self.token_embedding = nn.Embedding(config.vocabulary, config.size, DType.float32)
        self.positional_embedding = Weight("positional_embedding", DType.float32, (config.text_length, config.size))
        self.blocks = nn.LayerList([DecoderBlock(config) for _ in range(config.layers)])
        self.ln = _norm(config)

    def __call__(self, tokens: TensorValue, speech: TensorValue) -> dict[str, TensorValue]:
        """int64 [batch, seq], float32 [batch, audio_length, size] -> logits [batch, seq, vocabulary]."""
        positions = ops.gather(self.positional_embedding, ops.range(0, tokens.shape[1]))
        x = self.token_embedding(tokens) + positions
        for block in self.blocks:
            x = block(x, speech)
        return {"logits": ops.linear(self.ln(x), self.token_embedding.weight)}


def build(repository: Path, weights: str | PathLike[str] | None = None) -> None:
    """Write `whisper-encoder` and `whisper-decoder` over a checkpoint of OpenAI's."""
    place = required_weights("whisper-tiny", weights)
    models: dict[str, nn.Module] = {"encoder": Encoder(), "decoder": Decoder()}
    for name, model in models.items():
        part = open_checkpoint(place, rename={"**": f"model_state_dict.{name}.**"})
        types = input_types(Config())[name]
        bundle = model.bundle(*types, weights=needed_weights(model, part), name=f"whisper-{name}")
        bundle.write(repository / f"whisper-{name}" / "1")


def example_inputs() -> Inputs:
    """A silence, for the encoder."""
    config = Config()
    return {"mel": np.full((1, config.mels, 2 * config.audio_length), -1, np.float32)}


def input_types(config: Config) -> dict[str, list[TensorType]]:
    """The types of the inputs of both."""
    mel = TensorType(DType.float32, ["batch", config.mels, 2 * config.audio_length], DeviceRef.CPU())
    tokens = TensorType(DType.int64, ["batch", "seq"], DeviceRef.CPU())
    speech = TensorType(DType.float32, ["batch", config.audio_length, config.size], DeviceRef.CPU())
    return {"encoder": [mel], "decoder": [tokens, speech]}


class GELU(nn.Module):
    """gelu, as a numbered step."""

    def __call__(self, x: TensorValue) -> TensorValue:
        """[...] -> [...]."""
        return ops.gelu(x)


def _mlp(config: Config) -> nn.Sequential:
    return nn.Sequential([_linear(config.size, 4 * config.size), GELU(), _linear(4 * config.size, config.size)])


def _conv(channels_in: int, channels_out: int, stride: int = 1) -> nn.Conv1D:
    return nn.Conv1D(3, channels_in, channels_out, DType.float32, stride, padding=1, has_bias=True, permute=True)


def _linear(in_dim: int, out_dim: int) -> nn.Linear:
    return nn.Linear(in_dim, out_dim, DType.float32, has_bias=True)


def _norm(config: Config) -> nn.LayerNorm:
    return nn.LayerNorm(config.size, [DeviceRef.CPU()], DType.float32)
