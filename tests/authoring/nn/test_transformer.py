from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tidemill import nn
from tidemill.dtype import DType
from tidemill.graph import DeviceRef, TensorType
from tidemill.graph.export import to_model
from tidemill.protocol import Array

CPU = DeviceRef.CPU()
F32 = DType.float32
LAYERS, HEADS, KV_HEADS, SIZE, HIDDEN, VOCABULARY = 3, 4, 2, 4, 16, 11
CACHE = nn.KVCacheParams(F32, KV_HEADS, SIZE, LAYERS)


def block(rope: nn.RotaryEmbedding, multiplier: float = 1.0) -> nn.TransformerBlock:
    attention = nn.AttentionWithRope(
        rope=rope, num_attention_heads=HEADS, num_key_value_heads=KV_HEADS, hidden_size=HIDDEN, kv_params=CACHE
    )
    mlp = nn.MLP(F32, None, HIDDEN, 24, [CPU])
    return nn.TransformerBlock(attention, mlp, nn.RMSNorm(HIDDEN, F32), nn.RMSNorm(HIDDEN, F32), multiplier)


def decoder(**options: Any) -> nn.Transformer:
    rope = nn.RotaryEmbedding(HIDDEN, HEADS, 10000.0, 32, interleaved=False)
    return nn.Transformer(
        HIDDEN,
        HEADS,
        [block(rope) for _ in range(LAYERS)],
        nn.RMSNorm(HIDDEN, F32),
        nn.Linear(HIDDEN, VOCABULARY, F32, CPU),
        nn.Embedding(VOCABULARY, HIDDEN, F32, CPU),
        CACHE,
        rope,
        **options,
    )


def cached(model: nn.Transformer, tokens: Any, *flat: Any) -> Any:
    """The call of a served decoder: the cache as flat inputs and outputs."""
    past = [nn.KeyValue(*flat[place : place + 2]) for place in range(0, len(flat), 2)]
    logits, present = model(tokens, past)
    return [logits, *(part for cache in present for part in cache)]


def empty_cache(batch: int) -> list[Array]:
    return [np.zeros((batch, KV_HEADS, 0, SIZE), np.float32)] * 2 * LAYERS


TOKENS = np.array([[1, 5, 2, 9], [3, 3, 0, 7]])


def test_keys_and_shapes(run: Any) -> None:
    model = decoder()
    result = run(model, TOKENS, dims=[("b", "s")])
    assert result.output.shape == (2, VOCABULARY)
    assert "layers.2.self_attn.q_proj.weight" in result.weights
    assert {name.split(".")[0] for name in result.weights} == {"layers", "norm", "lm_head", "embed_tokens"}
    parts = {name.split(".")[2] for name in result.weights if name.startswith("layers.0.")}
    assert parts == {"self_attn", "mlp", "input_layernorm", "post_attention_layernorm"}


def test_a_block_adds_attention_and_then_the_feed_forward_layer(run: Any) -> None:
    x = np.random.default_rng(8).standard_normal((1, 3, HIDDEN)).astype(np.float32)
    layer = block(nn.RotaryEmbedding(HIDDEN, HEADS, 10000.0, 32), 0.5)

    def by_hand(one: nn.TransformerBlock, value: Any) -> Any:
        hidden = value + one.self_attn(one.input_layernorm(value)) * 0.5
        return hidden + one.mlp(one.post_attention_layernorm(hidden)) * 0.5

    np.testing.assert_array_equal(run(layer, x).output, run(layer, x, call=by_hand).output)


def test_blocks_take_attention_of_any_kind(run: Any) -> None:
    x = np.random.default_rng(9).standard_normal((1, 3, HIDDEN)).astype(np.float32)
    norms = nn.LayerNorm(HIDDEN, [CPU], F32), nn.LayerNorm(HIDDEN, [CPU], F32)
    layer = nn.TransformerBlock(nn.MultiheadAttention(4, HIDDEN), nn.Identity(), *norms)
    assert run(layer, x).output.shape == x.shape


@pytest.mark.parametrize("symbolic", [False, True])
def test_decoding_with_a_cache_equals_one_call(run: Any, symbolic: bool) -> None:
    model = decoder(return_logits=nn.ReturnLogits.ALL)
    whole = run(model, TOKENS).output
    dims = [("b", "s"), *[("b", KV_HEADS, "past", SIZE)] * 2 * LAYERS] if symbolic else None
    first, *cache = run(model, TOKENS[:, :3], *empty_cache(2), dims=dims, call=cached).outputs
    second, *cache = run(model, TOKENS[:, 3:], *cache, dims=dims, call=cached).outputs
    np.testing.assert_allclose(np.concatenate([first, second], 1), whole, rtol=1e-4, atol=1e-5)
    assert {array.shape for array in cache} == {(2, KV_HEADS, 4, SIZE)}


def test_padding_before_the_tokens_changes_nothing(run: Any) -> None:
    model = decoder()
    alone = run(model, TOKENS[:1, 1:]).output
    mask, positions = np.array([[0, 1, 1, 1]]), np.array([[0, 0, 1, 2]])
    padded = run(model, TOKENS[:1], positions, mask, call=lambda m, t, p, k: m(t, positions=p, mask=k)).output
    np.testing.assert_allclose(padded, alone, rtol=1e-4, atol=1e-5)


def test_multipliers(run: Any) -> None:
    plain = run(decoder(embedding_multiplier=2.0), TOKENS)
    scaled = run(decoder(embedding_multiplier=2.0, logits_scaling=4.0), TOKENS)
    np.testing.assert_allclose(scaled.output * 4, plain.output, rtol=1e-5, atol=1e-6)
    doubled = plain.weights | {"embed_tokens.weight": plain.weights["embed_tokens.weight"] * 2}
    np.testing.assert_allclose(run(decoder(), TOKENS, weights=doubled).output, plain.output, rtol=1e-5, atol=1e-6)


def test_caches_are_named_inputs_and_outputs() -> None:
    class Served(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = decoder()

        def __call__(self, tokens: Any, *past: Any) -> Any:
            return cached(self.model, tokens, *past)

    graph = Served().trace(
        TensorType(DType.int64, ["batch", "seq"]),
        *CACHE.input_types(),
        input_names=["tokens", *CACHE.names("past")],
        output_names=["logits", *CACHE.names("present")],
    )
    assert [spec.name for spec in graph.input_specs][:3] == ["tokens", "past.0.key", "past.0.value"]
    assert [str(dim) for dim in graph.output_types[1].shape] == ["batch", "2", "past + seq", "4"]


def test_blocks_share_one_function() -> None:
    model = to_model(decoder().trace(TensorType(DType.int64, ["b", "s"])), weights="inputs")
    calls = [node.op_type for node in model.graph.node if node.domain == "tidemill.functions"]
    assert calls.count("TransformerBlock") == LAYERS


def test_the_number_of_caches_is_that_of_the_layers(run: Any) -> None:
    with pytest.raises(ValueError, match="2 caches were given for 3 layers"):
        run(decoder(), TOKENS, *empty_cache(2)[:4], call=cached)
