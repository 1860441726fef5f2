from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from tidemill import nn
from tidemill.dtype import DType
from tidemill.protocol import Array

HEADS, KV_HEADS, SIZE, HIDDEN = 4, 2, 6, 12
F32 = DType.float32


def normal(*shape: int, seed: int = 4) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def split(x: Array, heads: int) -> Array:
    return x.reshape(*x.shape[:2], heads, -1).swapaxes(1, 2)


def attend(query: Array, key: Array, value: Array, allowed: Array | bool, scale: float) -> Array:
    """[batch, heads, length, size] of each, merged to [batch, length, heads * size]."""
    group = query.shape[1] // key.shape[1]
    scores = query @ np.repeat(key, group, 1).swapaxes(-1, -2) * scale
    weights = np.where(allowed, np.exp(scores - scores.max(-1, keepdims=True)), 0)
    mixed = weights / weights.sum(-1, keepdims=True) @ np.repeat(value, group, 1)
    return mixed.swapaxes(1, 2).reshape(len(mixed), query.shape[2], -1)


def turned(x: Array, positions: Array, theta: float = 10000.0) -> Array:
    """Halves of each head as complex numbers, turned by position / theta^(2 i / size)."""
    half = x.shape[-1] // 2
    angles = positions[:, None, :, None] / theta ** (np.arange(half) / half)
    product = (x[..., :half] + 1j * x[..., half:]) * np.exp(1j * angles)
    return np.concatenate([product.real, product.imag], -1).astype(x.dtype)


def causal(queries: int, past: int = 0) -> Array:
    return np.arange(past + queries) <= np.arange(queries)[:, None] + past


@pytest.mark.parametrize("stacked", [False, True])
@pytest.mark.parametrize("has_bias", [False, True])
def test_multihead_attention(run: Any, stacked: bool, has_bias: bool) -> None:
    layer = nn.MultiheadAttention(3, HIDDEN, qkv_has_bias=has_bias, o_proj_has_bias=has_bias, stacked_qkv=stacked)
    x = normal(2, 5, HIDDEN)
    result = run(layer, x, dims=[("b", "s", HIDDEN)])
    if stacked:
        flat = x @ result.weights["qkv_proj.weight"].T + (result.weights["qkv_proj.bias"] if has_bias else 0)
        parts = np.split(flat, 3, -1)
    else:
        parts = [project(x, result.weights, name) for name in ("q_proj", "k_proj", "v_proj")]
    expected = attend(*(split(part, 3) for part in parts), True, 0.5)
    np.testing.assert_allclose(result.output, project(expected, result.weights, "o_proj"), rtol=1e-4, atol=1e-5)


def project(x: Array, weights: Mapping[str, Array], name: str) -> Array:
    product: Array = x @ weights[f"{name}.weight"].T + weights.get(f"{name}.bias", np.float32(0))
    return product


@pytest.mark.parametrize("dtype", [np.bool_, np.int64])
def test_padding_is_not_looked_at(run: Any, dtype: Any) -> None:
    layer, x = nn.MultiheadAttention(3, HIDDEN), normal(2, 5, HIDDEN)
    mask = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], dtype)
    padded = run(layer, x, mask, dims=[("b", "s", HIDDEN), ("b", "s")]).output
    alone = run(layer, x[:1, :3]).output
    np.testing.assert_allclose(padded[0, :3], alone[0], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(padded[1], run(layer, x[1:]).output[0], rtol=1e-4, atol=1e-5)


def test_causal_attention_does_not_see_what_follows(run: Any) -> None:
    layer, x = nn.MultiheadAttention(3, HIDDEN), normal(1, 5, HIDDEN)
    changed = x.copy()
    changed[:, 3:] += 1
    first, second = (run(layer, one, call=lambda a, v: a(v, causal=True)).output for one in (x, changed))
    np.testing.assert_allclose(first[:, :3], second[:, :3], rtol=1e-5, atol=1e-6)
    assert not np.allclose(first[:, 3:], second[:, 3:])


def rope(**options: Any) -> nn.RotaryEmbedding:
    return nn.RotaryEmbedding(HIDDEN, HEADS, 10000.0, 64, head_dim=SIZE, interleaved=False, **options)


def grouped(**options: Any) -> nn.AttentionWithRope:
    sizes: dict[str, Any] = {"num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS, "hidden_size": HIDDEN}
    return nn.AttentionWithRope(rope=rope(), **sizes, **options)


def expected_attention(
    x: Array, weights: Mapping[str, Array], past: tuple[Array, Array], positions: Array, mask: Array | bool = True
) -> list[Array]:
    if "qkv_proj.weight" in weights:
        parts = np.split(x @ weights["qkv_proj.weight"].T, np.cumsum([HEADS * SIZE, KV_HEADS * SIZE]), -1)
    else:
        parts = [project(x, weights, name) for name in ("q_proj", "k_proj", "v_proj")]
    query, key, value = (split(part, count) for part, count in zip(parts, (HEADS, KV_HEADS, KV_HEADS), strict=True))
    if "q_norm.weight" in weights:
        query, key = (
            one / np.sqrt((one**2).mean(-1, keepdims=True) + 1e-6) * weights[f"{name}_norm.weight"]
            for one, name in ((query, "q"), (key, "k"))
        )
    query, key = turned(query, positions), turned(key, positions)
    keys, values = np.concatenate([past[0], key], 2), np.concatenate([past[1], value], 2)
    allowed = causal(x.shape[1], past[0].shape[2]) & mask
    mixed = attend(query, keys, values, allowed, SIZE**-0.5)
    return [project(mixed, weights, "o_proj"), keys, values]


OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "bias": {"has_bias": True},
    "stacked": {"stacked_qkv": True},
    "normed": {"use_qk_norm": True},
}


@pytest.mark.parametrize("option", OPTIONS)
def test_attention_with_rope(run: Any, option: str) -> None:
    x = normal(2, 5, HIDDEN)
    result = run(grouped(**OPTIONS[option]), x, dims=[("b", "s", HIDDEN)])
    nothing = np.zeros((2, KV_HEADS, 0, SIZE), np.float32)
    expected, *_ = expected_attention(x, result.weights, (nothing, nothing), np.arange(5)[None])
    np.testing.assert_allclose(result.output, expected, rtol=1e-4, atol=1e-5)


def with_cache(layer: nn.AttentionWithRope, x: Any, key: Any, value: Any, mask: Any = None) -> Any:
    output, cache = layer(x, past=nn.KeyValue(key, value), mask=mask)
    return [output, *cache]


CACHED = [("b", "s", HIDDEN), ("b", KV_HEADS, "past", SIZE), ("b", KV_HEADS, "past", SIZE)]


@pytest.mark.parametrize("past", [0, 3])
@pytest.mark.parametrize("symbolic", [False, True])
def test_a_cache_goes_in_and_comes_out(run: Any, past: int, symbolic: bool) -> None:
    x = normal(2, 4, HIDDEN)
    old = normal(2, KV_HEADS, past, SIZE), normal(2, KV_HEADS, past, SIZE, seed=5)
    result = run(grouped(), x, *old, dims=CACHED if symbolic else None, call=with_cache)
    expected = expected_attention(x, result.weights, old, past + np.arange(4)[None])
    for actual, wanted in zip(result.outputs, expected, strict=True):
        np.testing.assert_allclose(actual, wanted, rtol=1e-4, atol=1e-5)


def test_a_mask_of_any_dim_is_bound_to_the_length_of_the_cache(run: Any) -> None:
    x, past = normal(1, 2, HIDDEN), 3
    old = normal(1, KV_HEADS, past, SIZE), normal(1, KV_HEADS, past, SIZE, seed=5)
    mask = np.array([[0, 1, 1, 1, 1]])
    result = run(grouped(), x, *old, mask, dims=[*CACHED, ("b", "total")], call=with_cache)
    expected = expected_attention(x, result.weights, old, past + np.arange(2)[None], mask.astype(bool))
    np.testing.assert_allclose(result.outputs[0], expected[0], rtol=1e-4, atol=1e-5)


def test_tokens_one_by_one_equal_tokens_at_once(run: Any) -> None:
    layer, x = grouped(), normal(2, 5, HIDDEN)
    whole = run(layer, x).output
    cache = [np.zeros((2, KV_HEADS, 0, SIZE), np.float32)] * 2
    for place in range(5):
        output, *cache = run(layer, x[:, place : place + 1], *cache, call=with_cache).outputs
        np.testing.assert_allclose(output[:, 0], whole[:, place], rtol=1e-4, atol=1e-5)


def test_clipping_reaches_the_projections(run: Any) -> None:
    layer, x = grouped(clip_qkv=0.1), normal(1, 3, HIDDEN)
    weights = run(layer, x).weights
    clipped = {name: one if "o_proj" in name else np.clip(one, -0.1, 0.1) for name, one in weights.items()}
    np.testing.assert_allclose(run(layer, x).output, run(grouped(), x, weights=clipped).output, rtol=1e-5, atol=1e-6)


REFUSALS: dict[str, tuple[Any, str]] = {
    "heads": (lambda: nn.MultiheadAttention(5, HIDDEN), r"hidden_size \(12\) must be divisible by num_attention_heads"),
    "devices": (lambda: nn.MultiheadAttention(3, HIDDEN, devices=[]), "Devices cannot be empty"),
    "stacked bias": (lambda: grouped(stacked_qkv=True, has_bias=True), "not supported with stacked_qkv"),
    "odd": (lambda: nn.RotaryEmbedding(9, 3, 1e4, 8), "in pairs"),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_what_is_refused_says_why(case: str) -> None:
    make, text = REFUSALS[case]
    with pytest.raises(ValueError, match=text):
        make()
