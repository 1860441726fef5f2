"""Attention layers: projections around the attention operator, with or without a key and value cache."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, overload

from tidemill.dtype import DType
from tidemill.graph import ops
from tidemill.graph.dim import Dim
from tidemill.graph.type import DeviceRef
from tidemill.graph.value import TensorValue
from tidemill.graph.weight import Weight
from tidemill.nn.kv_cache import KVCacheParams
from tidemill.nn.layer.module import Module
from tidemill.nn.linear import Linear
from tidemill.nn.norm import RMSNorm
from tidemill.nn.rotary import RotaryEmbedding, positions_from

__all__ = ["AttentionWithRope", "KeyValue", "MultiheadAttention", "SlotCache"]


class KeyValue(NamedTuple):
    """What attention keeps of the tokens so far.

    Attributes:
        key: [batch, kv_heads, length, head_dim], already turned by their positions.
        value: [batch, kv_heads, length, head_dim].
    """

    key: TensorValue
    value: TensorValue


class SlotCache(NamedTuple):
    """A cache with room for more, into which attention writes; see `ops.slot_attention`.

    Attributes:
        key: [batch, kv_heads, capacity, head_dim], already turned by their positions.
        value: [batch, kv_heads, capacity, head_dim].
        ends: int32 [batch], the position of each row's last new token.
    """

    key: TensorValue
    value: TensorValue
    ends: TensorValue


class MultiheadAttention(Module):
    """Every token looks at every token (Vaswani et al., 2017).

    Args:
        num_attention_heads: The number of heads; it divides `hidden_size`.
        hidden_size: The last dim of input and output.
        devices: Where the weights live; the first counts.
        dtype: The element type of the weights.
        scale: What scores are multiplied by; 1 / sqrt(head size) by default.
        qkv_has_bias: Whether the projections of queries, keys and values have biases.
        o_proj_has_bias: Whether the output projection has a bias.
        stacked_qkv: Whether the checkpoint holds one weight for queries, keys and values.

    Weights: those of `q_proj`, `k_proj` and `v_proj`, or `qkv_proj.weight` [3 * hidden_size, hidden_size] and
    `qkv_proj.bias`; and those of `o_proj`.

    Raises:
        ValueError: The heads do not divide the hidden size, or `devices` is empty.
    """

    def __init__(
        self,
        num_attention_heads: int,
        hidden_size: int,
        devices: Sequence[DeviceRef] | None = None,
        dtype: DType = DType.float32,
        scale: float | None = None,
        qkv_has_bias: bool = False,
        o_proj_has_bias: bool = False,
        stacked_qkv: bool = False,
    ) -> None:
        super().__init__()
        if hidden_size % num_attention_heads:
            raise ValueError(
                f"hidden_size ({hidden_size}) must be divisible by num_attention_heads ({num_attention_heads})"
            )
        if devices is not None and not devices:
            raise ValueError("Devices cannot be empty")
        device = devices[0] if devices else None
        self.num_heads = num_attention_heads
        self.scale = scale
        self.stacked_qkv = stacked_qkv
        if stacked_qkv:
            shape = (3 * hidden_size, hidden_size)
            self.qkv_proj = Weight("qkv_proj.weight", dtype, shape, device)
            self.qkv_proj_bias = Weight("qkv_proj.bias", dtype, shape[:1], device) if qkv_has_bias else None
        self.o_proj = Linear(hidden_size, hidden_size, dtype, device, o_proj_has_bias)
        if not stacked_qkv:
            self.q_proj = Linear(hidden_size, hidden_size, dtype, device, qkv_has_bias)
            self.k_proj = Linear(hidden_size, hidden_size, dtype, device, qkv_has_bias)
            self.v_proj = Linear(hidden_size, hidden_size, dtype, device, qkv_has_bias)

    def __call__(self, x: TensorValue, mask: TensorValue | None = None, *, causal: bool = False) -> TensorValue:
        """[batch, length, hidden_size] -> [batch, length, hidden_size].

        Args:
            x: The tokens.
            mask: [batch, keys], true or not 0 where there is a token and not padding; or what `ops.attention` takes,
                [batch, heads, queries, keys].
            causal: Whether a token may only look at itself and earlier ones.
        """
        query, key, value = (split_heads(one, self.num_heads) for one in self._projected(x))
        allowed = attention_mask(mask, *x.shape[:2])
        mixed = ops.attention(query, key, value, allowed, scale=self.scale, causal=causal)
        return self.o_proj(merge_heads(mixed))

    def _projected(self, x: TensorValue) -> list[TensorValue]:
        if self.stacked_qkv:
            return ops.chunk(ops.linear(x, self.qkv_proj, self.qkv_proj_bias), 3, axis=-1)
        return [self.q_proj(x), self.k_proj(x), self.v_proj(x)]


class AttentionWithRope(Module):
    """Causal attention with grouped heads and rotary positions, as in Llama and its kin.

    The seed's paged cache is an explicit input and output here: what one call returns is given to the next.

    Args:
        rope: The rotary embedding.
        num_attention_heads: The number of query heads.
        num_key_value_heads: The number of key and value heads; it divides that of the query heads.
        hidden_size: The last dim of input and output.
        kv_params: The size of a head; taken from `rope` by default.
        devices: Where the weights live; the first counts.
        dtype: The element type of the weights.
        linear_cls: What makes a projection, called as `Linear` is, by keywords.
        stacked_qkv: Whether the checkpoint holds one weight for queries, keys and values.
        scale: What scores are multiplied by; what `rope` says by default.
        has_bias: Whether the projections of queries, keys and values have biases.
        clip_qkv: Clip the weights of queries, keys and values to [-clip_qkv, clip_qkv].
        use_qk_norm: Whether queries and keys are normalised per head, before they are turned.
        rms_norm_eps: The epsilon of these.

    Weights: those of `q_proj`, `k_proj`, `v_proj` and `o_proj`, or `qkv_proj.weight`; `q_norm.weight` and
    `k_norm.weight` [head_dim] with `use_qk_norm`.

    Raises:
        ValueError: A stacked weight is to be clipped or to have a bias.
    """

    def __init__(
        self,
        *,
        rope: RotaryEmbedding,
        num_attention_heads: int,
        num_key_value_heads: int,
        hidden_size: int,
        kv_params: KVCacheParams | None = None,
        devices: Sequence[DeviceRef] | None = None,
        dtype: DType = DType.float32,
        linear_cls: Callable[..., Module] = Linear,
        stacked_qkv: bool = False,
        scale: float | None = None,
        has_bias: bool = False,
        clip_qkv: float | None = None,
        use_qk_norm: bool = False,
        rms_norm_eps: float = 1e-6,
    ) -> None:
        super().__init__()
        if stacked_qkv and (clip_qkv or has_bias):
            raise ValueError("clip_qkv and has_bias are not supported with stacked_qkv=True")
        device = devices[0] if devices else None
        self.rope = rope
        self.n_heads = num_attention_heads
        self.num_key_value_heads = num_key_value_heads
        self.head_dim = kv_params.head_dim if kv_params else rope.head_dim
        # The rope's own scale is that of a head of its size; it may turn only a part of each head.
        part = math.sqrt(rope.head_dim / self.head_dim)
        self.scale = scale if scale is not None else rope.compute_scale() * part
        self.stacked_qkv = stacked_qkv
        self.use_qk_norm = use_qk_norm
        if use_qk_norm:
            self.q_norm = RMSNorm(self.head_dim, dtype, rms_norm_eps)
            self.k_norm = RMSNorm(self.head_dim, dtype, rms_norm_eps)

        def projection(in_dim: int, out_dim: int, **options: object) -> Module:
            return linear_cls(in_dim=in_dim, out_dim=out_dim, dtype=dtype, device=device, **options)

        width, kv_width = self.head_dim * num_attention_heads, self.head_dim * num_key_value_heads
        self.linear_cls = linear_cls
        if stacked_qkv and linear_cls is Linear:
            self.qkv_proj: Any = Weight("qkv_proj.weight", dtype, (width + 2 * kv_width, hidden_size), device)
        elif stacked_qkv:
            self.qkv_proj = projection(hidden_size, width + 2 * kv_width)
        else:
            self.q_proj = projection(hidden_size, width, has_bias=has_bias, clip_weight=clip_qkv)
            self.k_proj = projection(hidden_size, kv_width, has_bias=has_bias, clip_weight=clip_qkv)
            self.v_proj = projection(hidden_size, kv_width, has_bias=has_bias, clip_weight=clip_qkv)
        self.o_proj = projection(width, hidden_size)

    @overload
    def __call__(
        self,
        x: TensorValue,
        freqs: tuple[TensorValue, TensorValue] | None = None,
        past: None = None,
        mask: TensorValue | None = None,
    ) -> TensorValue: ...
    @overload
    def __call__(
        self,
        x: TensorValue,
        freqs: tuple[TensorValue, TensorValue] | None = None,
        *,
        past: KeyValue | SlotCache,
        mask: TensorValue | None = None,
    ) -> tuple[TensorValue, KeyValue]: ...
    def __call__(
        self,
        x: TensorValue,
        freqs: tuple[TensorValue, TensorValue] | None = None,
        past: KeyValue | SlotCache | None = None,
        mask: TensorValue | None = None,
    ) -> TensorValue | tuple[TensorValue, KeyValue]:
        """[batch, length, hidden_size] -> [batch, length, hidden_size].

        Args:
            x: The tokens.
            freqs: What `rope.cos_sin` gave for their positions; by default they follow the past without a gap. With
                a SlotCache what `rope.tables` gave.
            past: The cache of earlier tokens; their number may be 0. A SlotCache says by itself where tokens stand
                and takes no mask.
            mask: [batch, past + length], true or not 0 where there is a token and not padding; or what `ops.attention`
                takes, [batch, heads, length, past + length].

        Returns:
            The result; with a past also the cache for the next call.
        """
        if isinstance(past, SlotCache):
            return self._over_slots(x, past, freqs or self.rope.tables(x.dtype))
        query, key, value = self._projected(x)
        start = 0 if past is None else past.key.shape[2]
        cosine, sine = freqs or self.rope.cos_sin(positions_from(x, start), query.dtype)
        query, key = self.rope.rotate(query, cosine, sine), self.rope.rotate(key, cosine, sine)
        allowed = attention_mask(mask, x.shape[0], start + x.shape[1])
        if past is None:
            mixed = ops.attention(query, key, value, allowed, scale=self.scale, causal=True)
            return self._output(mixed)
        mixed, *cache = ops.cached_attention(query, key, value, past, allowed, scale=self.scale)
        return self._output(mixed), KeyValue(*cache)

    def _over_slots(
        self, x: TensorValue, past: SlotCache, tables: tuple[TensorValue, TensorValue]
    ) -> tuple[TensorValue, KeyValue]:
        query, key, value = (merge_heads(one) for one in self._projected(x)) if self.use_qk_norm else self._flat(x)
        mixed, keys, values = ops.slot_attention(
            query,
            key,
            value,
            (past.key, past.value),
            past.ends,
            rotary=tables,
            interleaved=self.rope.interleaved,
            scale=self.scale,
        )
        result: TensorValue = self.o_proj(mixed)
        return result, KeyValue(keys, values)

    def _projected(self, x: TensorValue) -> list[TensorValue]:
        """Queries, keys and values as [batch, heads, length, head_dim]."""
        counts = (self.n_heads, self.num_key_value_heads, self.num_key_value_heads)
        query, key, value = (split_heads(one, count) for one, count in zip(self._flat(x), counts, strict=True))
        return [self.q_norm(query), self.k_norm(key), value] if self.use_qk_norm else [query, key, value]

    def _flat(self, x: TensorValue) -> list[TensorValue]:
        """Queries, keys and values as [batch, length, heads * head_dim]."""
        if not self.stacked_qkv:
            return [self.q_proj(x), self.k_proj(x), self.v_proj(x)]
        sizes = [count * self.head_dim for count in (self.n_heads, *[self.num_key_value_heads] * 2)]
        stacked = ops.linear(x, self.qkv_proj) if self.linear_cls is Linear else self.qkv_proj(x)
        return ops.split(stacked, sizes, axis=-1)

    def _output(self, mixed: TensorValue) -> TensorValue:
        result: TensorValue = self.o_proj(merge_heads(mixed))
        return result


def split_heads(x: TensorValue, heads: int) -> TensorValue:
    """[batch, length, heads * size] -> [batch, heads, length, size]."""
    batch, length, width = x.shape
    return ops.transpose(ops.reshape(x, (batch, length, heads, width // heads)), 1, 2)


def merge_heads(x: TensorValue) -> TensorValue:
    """[batch, heads, length, size] -> [batch, length, heads * size]."""
    batch, heads, length, size = x.shape
    return ops.reshape(ops.transpose(x, 1, 2), (batch, length, heads * size))


def attention_mask(mask: TensorValue | None, batch: Dim, keys: Dim) -> TensorValue | None:
    """A padding mask [batch, keys] as [batch, 1, 1, keys] of bool; any other mask as it is.

    The number of keys is often an input's own dim; it is bound to that of the cache and the tokens.
    """
    if mask is None or mask.rank != 2:
        return mask
    allowed = mask if mask.dtype is DType.bool else ops.not_equal(mask, 0)
    bound = ops.rebind(allowed, (batch, keys), "a padding mask is [batch, keys]")
    return ops.unsqueeze(ops.unsqueeze(bound, 1), 1)
