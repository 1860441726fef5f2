"""GPT-2: a decoder with learned positions, text to the next token (Radford et al., 2019).

Names are Hugging Face's, whose projections are stored as [in, out]. No package carries weights; give `build` a
checkpoint.
"""

from __future__ import annotations

from dataclasses import dataclass
from os import PathLike
from pathlib import Path

import numpy as np

from tidemill import nn
from tidemill.dtype import DType
from tidemill.graph import DeviceRef, TensorType, TensorValue, Weight, ops
from tidemill.modelzoo.package_files import required_weights
from tidemill.modelzoo.settings import write_settings
from tidemill.modelzoo.zoo_model import Inputs

__all__ = ["GPT2", "Config", "build", "example_inputs"]


@dataclass(frozen=True)
class Config:
    """The sizes, under the checkpoint's names."""

    vocab_size: int = 50257
    n_positions: int = 1024
    n_embd: int = 768
    n_layer: int = 12
    n_head: int = 12
    layer_norm_epsilon: float = 1e-5


class Conv1D(nn.Module):
    """x @ weight + bias: a Linear whose weight lies the other way round."""

    def __init__(self, in_dim: int, out_dim: int) -> None:
        super().__init__()
        self.weight = Weight("weight", DType.float32, (in_dim, out_dim))
        self.bias = Weight("bias", DType.float32, (out_dim,))

    def __call__(self, x: TensorValue) -> TensorValue:
        """[..., in] -> [..., out]."""
        return x @ self.weight + self.bias


class Attention(nn.Module):
    """Every token looks at itself and the earlier ones."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.heads = config.n_head
        self.c_attn = Conv1D(config.n_embd, 3 * config.n_embd)
        self.c_proj = Conv1D(config.n_embd, config.n_embd)

    def __call__(self, x: TensorValue) -> TensorValue:
        """[batch, seq, n_embd] -> the same."""
        batch, seq, size = x.shape
        query, key, value = (
            part.reshape([batch, seq, self.heads, size // self.heads]).permute([0, 2, 1, 3])
            for part in ops.chunk(self.c_attn(x), 3, axis=-1)
        )
        mixed = ops.attention(query, key, value, causal=True)
        return self.c_proj(mixed.permute([0, 2, 1, 3]).reshape(x.shape))


class MLP(nn.Module):
    """c_proj(gelu(c_fc(x))), with gelu's approximation by tanh."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.c_fc = Conv1D(config.n_embd, 4 * config.n_embd)
        self.c_proj = Conv1D(4 * config.n_embd, config.n_embd)

    def __call__(self, x: TensorValue) -> TensorValue:
        """[batch, seq, n_embd] -> the same."""
        return self.c_proj(ops.gelu(self.c_fc(x), approximate="tanh"))


class Block(nn.Module):
    """Attention and MLP, each on what is normalised, each added; all of them are one function."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.ln_1, self.attn = _norm(config), Attention(config)
        self.ln_2, self.mlp = _norm(config), MLP(config)

    def __call__(self, x: TensorValue) -> TensorValue:
        """[batch, seq, n_embd] -> the same."""
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT2(nn.Module):
    """Words and positions added, blocks, norm, and the embedding again to choose a token."""

    def __init__(self, config: Config | None = None) -> None:
        super().__init__()
        config = config or Config()
        self.wte = nn.Embedding(config.vocab_size, config.n_embd, DType.float32)
        self.wpe = nn.Embedding(config.n_positions, config.n_embd, DType.float32)
        self.h = nn.Sequential([Block(config) for _ in range(config.n_layer)])
        self.ln_f = _norm(config)

    def __call__(self, input_ids: TensorValue) -> dict[str, TensorValue]:
        """int64 [batch, seq], padding after the tokens -> logits [batch, seq, vocab_size]."""
        hidden = self.h(self.wte(input_ids) + self.wpe(ops.range(0, input_ids.shape[1])))
        return {"logits": ops.linear(self.ln_f(hidden), self.wte.weight)}


def build(repository: Path, weights: str | PathLike[str] | None = None) -> None:
    """Write `repository/gpt2/1` over a checkpoint of Hugging Face's; it looks back only, so padding changes nothing."""
    bundle = GPT2().bundle(input_type(), weights=required_weights("gpt2", weights), name="gpt2")
    bundle.write(repository / "gpt2" / "1")
    write_settings(repository / "gpt2" / "model.yaml", "batching:\n  ragged:\n    pad: {input_ids: 0}\n")


def example_inputs() -> Inputs:
    """The tokens of "Hello world"."""
    return {"input_ids": np.array([[15496, 995]])}


def input_type() -> TensorType:
    """The type of the tokens."""
    return TensorType(DType.int64, ["batch", "seq"], DeviceRef.CPU())


def _norm(config: Config) -> nn.LayerNorm:
    return nn.LayerNorm(config.n_embd, [DeviceRef.CPU()], DType.float32, eps=config.layer_norm_epsilon)
