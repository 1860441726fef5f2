"""A model that makes a vector of a text: the sum of its tokens, and how many there are."""

from __future__ import annotations

from pathlib import Path

from byte_tokenizer import byte_tokenizer_file

from tidemill import nn
from tidemill.dtype import DType
from tidemill.graph import DeviceRef, TensorType, TensorValue, ops

__all__ = ["write_words"]


class Words(nn.Module):
    def __call__(self, input_ids: TensorValue, attention_mask: TensorValue) -> dict[str, TensorValue]:
        kept = (input_ids * attention_mask).cast(DType.float32)
        sums = [ops.sum(kept), ops.sum(attention_mask.cast(DType.float32))]
        return {"embedding": ops.concat(sums, axis=1)}


def write_words(folder: Path) -> None:
    """Write a model's folder."""
    tokens = TensorType(DType.int64, ["batch", "length"], DeviceRef.CPU())
    Words().bundle(tokens, tokens, weights={}, name="words").write(folder / "1")
    (folder / "tokenizer.json").write_text(byte_tokenizer_file())
    (folder / "model.yaml").write_text("adapter:\n  text: {}\n")
