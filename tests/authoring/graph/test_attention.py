from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemill.dtype import DType
from tidemill.graph import Graph, TensorType
from tidemill.graph.export import to_model
from tidemill.graph.ops.attention import attention, cached_attention
from tidemill.protocol import Array


def numpy_attention(
    query: Array,
    key: Array,
    value: Array,
    mask: Array | None = None,
    *,
    scale: float | None = None,
    causal: bool = False,
    past: int = 0,
    softcap: float = 0.0,
) -> Array:
    group = query.shape[1] // key.shape[1]
    wide_key, wide_value = (np.repeat(one.astype(np.float64), group, axis=1) for one in (key, value))
    scores = (
        query.astype(np.float64) @ wide_key.swapaxes(-1, -2) * (query.shape[-1] ** -0.5 if scale is None else scale)
    )
    if softcap:
        scores = softcap * np.tanh(scores / softcap)
    allowed = np.ones(scores.shape, bool)
    if causal:
        allowed &= np.arange(scores.shape[-1]) <= np.arange(scores.shape[-2])[:, None] + past
    if mask is not None and mask.dtype == bool:
        allowed &= mask
    elif mask is not None:
        scores = scores + mask
    scores = np.where(allowed, scores, -np.inf)
    highest = np.where(allowed.any(-1, keepdims=True), scores.max(-1, keepdims=True), 0)
    exponents = np.exp(scores - highest)
    total = exponents.sum(-1, keepdims=True)
    weights = np.divide(exponents, total, out=np.zeros_like(exponents), where=total > 0)
    return (weights @ wide_value).astype(query.dtype)


def heads(seed: int, kv_heads: int, keys: int, dtype: type = np.float32, past: int = 0) -> list[Array]:
    rng = np.random.default_rng(seed)
    shapes = [(2, 4, 5, 8), (2, kv_heads, keys, 8), (2, kv_heads, keys, 6)]
    shapes += [(2, kv_heads, past, 8), (2, kv_heads, past, 6)]
    return [rng.standard_normal(shape).astype(dtype) for shape in shapes]


DIMS = [("b", 4, "q", 8), ("b", 2, "k", 8), ("b", 2, "k", 6)]


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.float64])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("kv_heads", [1, 2, 4])
def test_grouped_heads(check_op: Any, dtype: type, causal: bool, kv_heads: int) -> None:
    arrays = heads(kv_heads, kv_heads, 7, dtype)[:3]
    check_op(
        lambda q, k, v: attention(q, k, v, causal=causal),
        *arrays,
        expect=lambda q, k, v: numpy_attention(q, k, v, causal=causal),
    )


@settings(max_examples=25, deadline=None, derandomize=True)
@given(
    shape=st.sampled_from([(5, 7), (1, 7), (2, 1, 1, 7), (1, 4, 5, 7), (2, 1, 5, 7), (4, 5, 1), (1, 1, 1, 1)]),
    dtype=st.sampled_from([np.float32, np.float64]),
    additive=st.booleans(),
    causal=st.booleans(),
    seed=st.integers(0, 99),
)
def test_masks_broadcast(
    check_op: Any, shape: tuple[int, ...], dtype: type, additive: bool, causal: bool, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    mask = rng.standard_normal(shape).astype(dtype) if additive else rng.random(shape) < 0.6
    check_op(
        lambda q, k, v, m: attention(q, k, v, m, causal=causal),
        *heads(seed, 2, 7, dtype)[:3],
        mask,
        expect=lambda q, k, v, m: numpy_attention(q, k, v, m, causal=causal),
    )


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("causal", [False, True])
def test_softcap_comes_before_the_mask(check_op: Any, dtype: type, causal: bool) -> None:
    check_op(
        lambda q, k, v: attention(q, k, v, scale=2.0, causal=causal, softcap=1.5),
        *heads(3, 2, 5, dtype)[:3],
        expect=lambda q, k, v: numpy_attention(q, k, v, scale=2.0, causal=causal, softcap=1.5),
    )


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.float64])
@pytest.mark.parametrize("past", [0, 3])
@pytest.mark.parametrize("masked", [False, True])
def test_a_cache_is_continued(check_op: Any, dtype: type, past: int, masked: bool) -> None:
    query, key, value, *cache = heads(past, 2, 5, dtype, past)
    mask = [np.random.default_rng(1).random((2, 1, 1, past + 5)) < 0.7] if masked else []

    def expected(q: Array, k: Array, v: Array, old_k: Array, old_v: Array, *m: Array) -> list[Array]:
        keys, values = np.concatenate([old_k, k], 2), np.concatenate([old_v, v], 2)
        return [numpy_attention(q, keys, values, *m, causal=True, past=past), keys, values]

    check_op(
        lambda q, k, v, old_k, old_v, *m: cached_attention(q, k, v, (old_k, old_v), *m),
        *(query, key, value, *cache, *mask),
        expect=expected,
    )


def test_symbolic_sizes(check_op: Any) -> None:
    check_op(attention, *heads(0, 2, 7)[:3], dims=DIMS, expect=numpy_attention)


def test_symbolic_past(check_op: Any) -> None:
    past = 4
    dims = [("b", 4, "q", 8), ("b", 2, "q", 8), ("b", 2, "q", 6), ("b", 2, "p", 8), ("b", 2, "p", 6)]

    def expected(q: Array, k: Array, v: Array, old_k: Array, old_v: Array) -> list[Array]:
        keys, values = np.concatenate([old_k, k], 2), np.concatenate([old_v, v], 2)
        return [numpy_attention(q, keys, values, causal=True, past=past), keys, values]

    for dtype in (np.float32, np.float64):
        check_op(
            lambda q, k, v, old_k, old_v: cached_attention(q, k, v, (old_k, old_v)),
            *heads(5, 2, 5, dtype, past),
            dims=dims,
            expect=expected,
        )


FAULTS: dict[str, tuple[list[Any], str]] = {
    "rank": ([(2, 4, 5), (2, 2, 7, 8), (2, 2, 7, 6)], "query must be"),
    "size": ([(2, 4, 5, 8), (2, 2, 7, 9), (2, 2, 7, 6)], "batch and size"),
    "length": ([(2, 4, 5, 8), (2, 2, 7, 8), (2, 2, 6, 6)], "batch, heads and length"),
    "heads": ([(2, 4, 5, 8), (2, 3, 7, 8), (2, 3, 7, 6)], "3 key heads must divide the 4 query heads"),
    "mask": ([(2, 4, 5, 8), (2, 2, 7, 8), (2, 2, 7, 6), (5, 6)], r"\[batch, heads, queries, keys\]"),
}


@pytest.mark.parametrize("case", FAULTS)
def test_what_does_not_fit_is_named(case: str) -> None:
    shapes, text = FAULTS[case]
    with pytest.raises(ValueError, match=text):
        Graph("g", attention, [TensorType(DType.float32, shape) for shape in shapes])


def test_only_such_models_need_opset_23(trace_op: Callable[..., Graph]) -> None:
    newer = to_model(trace_op(attention, *heads(0, 2, 7)[:3]), weights="inputs")
    older = to_model(trace_op(attention, *heads(0, 2, 7, np.float64)[:3]), weights="inputs")
    assert [newer.opset_import[0].version, older.opset_import[0].version] == [23, 21]
