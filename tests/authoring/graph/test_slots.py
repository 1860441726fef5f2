"""Attention over slots against the portable form, which keeps its cache by concatenation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tidemill import nn
from tidemill.dtype import DType
from tidemill.engine import Instance
from tidemill.graph import DeviceRef, Graph, TensorType, TensorValue, ops
from tidemill.protocol import Array

HIDDEN, HEADS, KV_HEADS, SIZE, ROOM = 96, 6, 2, 16, 12


class OverSlots(nn.Module):
    def __init__(self, interleaved: bool = False, norm: bool = False, stacked: bool = False) -> None:
        super().__init__()
        rope = nn.RotaryEmbedding(HIDDEN, HEADS, 10_000.0, 64, SIZE, interleaved=interleaved)
        self.attention = nn.AttentionWithRope(
            rope=rope,
            num_attention_heads=HEADS,
            num_key_value_heads=KV_HEADS,
            hidden_size=HIDDEN,
            use_qk_norm=norm,
            stacked_qkv=stacked,
        )

    def __call__(self, x: TensorValue, ends: TensorValue, key: TensorValue, value: TensorValue) -> Any:
        y, present = self.attention(x, past=nn.SlotCache(key, value, ends))
        return {"y": y, "keys": present.key, "values": present.value}


class Concatenated(OverSlots):
    def __call__(self, x: TensorValue, key: TensorValue, value: TensorValue) -> Any:  # type: ignore[override]
        y, present = self.attention(x, past=nn.KeyValue(key, value))
        return {"y": y, "keys": present.key, "values": present.value}


def types(length: str) -> list[TensorType]:
    cache = TensorType(DType.float32, ["batch", KV_HEADS, length, SIZE], DeviceRef.CPU())
    return [TensorType(DType.float32, ["batch", "seq", HIDDEN], DeviceRef.CPU()), cache, cache]


def opened(model: nn.Module, inputs: list[TensorType], folder: Path) -> Instance:
    random = np.random.default_rng(0)
    weights = {name: random.standard_normal(value.shape, np.float32) for name, value in model.state_dict().items()}
    return Instance.open(model.bundle(*inputs, weights=weights, name="x").write(folder))


def normal(*shape: int, seed: int = 1) -> Array:
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


@pytest.mark.parametrize(
    "options", [{}, {"interleaved": True}, {"stacked": True}, {"norm": True}], ids=lambda options: str(options)
)
def test_slots_give_what_concatenation_gives(options: dict[str, bool], tmp_path: Path) -> None:
    x, cache, value = types("room")
    slots = opened(OverSlots(**options), [x, TensorType(DType.int32, ["batch"]), cache, value], tmp_path / "a")
    plain = opened(Concatenated(**options), types("past"), tmp_path / "b")
    tokens = normal(2, 7, HIDDEN)
    # One row has read five tokens before, the other two; both read one more.
    seen = (5, 2)
    keys, values = np.zeros((2, 2, KV_HEADS, ROOM, SIZE), np.float32)
    step = np.stack([tokens[row, length] for row, length in enumerate(seen)])[:, None]
    expected = []
    for row, length in enumerate(seen):
        nothing = np.zeros((1, KV_HEADS, 0, SIZE), np.float32)
        first = plain.run({"x": tokens[row : row + 1, :length], "key": nothing, "value": nothing})
        keys[row, :, :length], values[row, :, :length] = first["keys"][0], first["values"][0]
        expected.append(plain.run({"x": step[row : row + 1], "key": first["keys"], "value": first["values"]}))
    together = slots.run({"x": step, "ends": np.array(seen, np.int32), "key": keys, "value": values})
    for row, length in enumerate(seen):
        np.testing.assert_allclose(together["y"][row], expected[row]["y"][0], rtol=1e-4, atol=1e-4)
        for name in ("keys", "values"):
            np.testing.assert_allclose(
                together[name][row, :, : length + 1], expected[row][name][0], rtol=1e-4, atol=1e-5
            )


@pytest.mark.parametrize(
    ("query", "key", "cache", "ends", "text"),
    [
        ((2, 3, 48), (2, 3, 16), (2, 2, 9, 8), DType.int64, "ends int32"),
        ((2, 3, 48), (2, 3, 9), (2, 2, 9, 8), DType.int32, "kv_heads"),
        ((2, 3, 24), (2, 3, 8), (2, 2, 9, 4), DType.int32, "multiple of 8"),
        ((2, 3, 40), (2, 3, 16), (2, 2, 9, 8), DType.int32, "must divide"),
        ((2, 48), (2, 3, 16), (2, 2, 9, 8), DType.int32, "must be"),
    ],
)
def test_what_does_not_fit_is_named(query: Any, key: Any, cache: Any, ends: DType, text: str) -> None:
    shapes = [query, key, key, cache, cache]
    inputs = [*(TensorType(DType.float32, shape) for shape in shapes), TensorType(ends, [2])]
    with Graph("g", input_types=inputs) as graph:
        q, k, v, keys, values, places = graph.inputs
        with pytest.raises(ValueError, match=text):
            ops.slot_attention(q, k, v, (keys, values), places)
