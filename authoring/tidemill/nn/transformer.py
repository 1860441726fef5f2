"""Transformer blocks and the decoder made of them."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Any, cast

from tidemill.graph.value import TensorValue
from tidemill.nn.attention import KeyValue
from tidemill.nn.kv_cache import KVCacheParams
from tidemill.nn.layer.layer_list import LayerList
from tidemill.nn.layer.module import Module
from tidemill.nn.rotary import RotaryEmbedding, positions_from

__all__ = ["ReturnLogits", "Transformer", "TransformerBlock"]


class TransformerBlock(Module):
    """x + attention(norm(x)), then the same with the feed-forward layer.

    Args:
        attention: Called with the normalised input and whatever else the block is called with. It returns the result,
            or a tuple of the result and what is to be passed on, such as a cache.
        mlp: The feed-forward layer.
        attention_norm: What normalises before attention.
        mlp_norm: What normalises before the feed-forward layer.
        residual_multiplier: What both are multiplied by before they are added.

    Weights: those of `self_attn`, `mlp`, `input_layernorm` and `post_attention_layernorm`.
    """

    def __init__(
        self,
        attention: Module,
        mlp: Module,
        attention_norm: Module,
        mlp_norm: Module,
        residual_multiplier: float = 1.0,
    ) -> None:
        super().__init__()
        self.self_attn = attention
        self.mlp = mlp
        self.input_layernorm = attention_norm
        self.post_attention_layernorm = mlp_norm
        self.residual_multiplier = residual_multiplier

    def __call__(self, x: TensorValue, *args: Any, **kwargs: Any) -> Any:
        """[batch, length, hidden] -> the same; a tuple with what attention passes on, if it does."""
        attended = self.self_attn(self.input_layernorm(x), *args, **kwargs)
        mixed, rest = (attended[0], attended[1:]) if isinstance(attended, tuple) else (attended, ())
        hidden = x + self._scaled(mixed)
        hidden = hidden + self._scaled(self.mlp(self.post_attention_layernorm(hidden)))
        return (hidden, *rest) if rest else hidden

    def _scaled(self, x: TensorValue) -> TensorValue:
        return x if self.residual_multiplier == 1.0 else x * self.residual_multiplier


class ReturnLogits(Enum):
    """For which tokens a Transformer gives logits."""

    LAST_TOKEN = "last_token"
    ALL = "all"


class Transformer(Module):
    """A decoder: embedding, blocks, norm and the projection onto the vocabulary.

    Args:
        dim: The hidden size.
        n_heads: The number of query heads.
        layers: The blocks; their attention is an `AttentionWithRope`, or takes the same arguments.
        norm: What normalises before the output.
        output: The projection onto the vocabulary.
        embedding: Turns tokens into vectors.
        kv_params: The sizes of the cache, for who builds the inputs; not needed here.
        rope: The rotary embedding, whose angles are computed once for all layers.
        return_logits: Logits of each sequence's last token, or of all.
        embedding_multiplier: What embeddings are multiplied by.
        logits_scaling: What logits are divided by.

    Weights: those of `layers.0`, `layers.1`, ..., `norm`, `lm_head` and `embed_tokens`.
    """

    def __init__(
        self,
        dim: int,
        n_heads: int,
        layers: Sequence[Module],
        norm: Module,
        output: Module,
        embedding: Module,
        kv_params: KVCacheParams | None,
        rope: RotaryEmbedding,
        return_logits: ReturnLogits = ReturnLogits.LAST_TOKEN,
        embedding_multiplier: float = 1.0,
        logits_scaling: float = 1.0,
    ) -> None:
        super().__init__()
        self.dim = dim
        self.n_heads = n_heads
        self.layers = LayerList(layers)
        self.norm = norm
        self.lm_head = output
        self.embed_tokens = embedding
        self.kv_params = kv_params
        self.rope = rope
        self.return_logits = return_logits
        self.embedding_multiplier = embedding_multiplier
        self.logits_scaling = logits_scaling

    def __call__(
        self,
        tokens: TensorValue,
        past: Sequence[KeyValue] = (),
        positions: TensorValue | None = None,
        mask: TensorValue | None = None,
    ) -> Any:
        """Logits for the next token.

        Args:
            tokens: int32 or int64 [batch, length]; where sequences differ in length, padding stands before the tokens,
                since the last place counts.
            past: The cache of each layer; none for a call that neither takes nor gives one.
            positions: int64 [batch, length]; by default the tokens follow the past without a gap.
            mask: [batch, past + length], true or not 0 where there is a token and not padding.

        Returns:
            [batch, vocabulary] for LAST_TOKEN, else [batch, length, vocabulary]; with a past the pair of that and the
            list of the layers' caches for the next call.

        Raises:
            ValueError: There are not as many caches as layers.
        """
        if past and len(past) != len(self.layers):
            raise ValueError(f"Transformer: {len(past)} caches were given for {len(self.layers)} layers")
        hidden, caches = self._hidden(tokens, past, positions, mask)
        logits = self._logits(hidden)
        return (logits, caches) if past else logits

    def _hidden(
        self,
        tokens: TensorValue,
        past: Sequence[KeyValue],
        positions: TensorValue | None,
        mask: TensorValue | None,
    ) -> tuple[TensorValue, list[KeyValue]]:
        hidden: TensorValue = self.embed_tokens(tokens)
        if self.embedding_multiplier != 1.0:
            hidden = hidden * self.embedding_multiplier
        if positions is None:
            positions = positions_from(tokens, past[0].key.shape[2] if past else 0)
        freqs = self.rope.cos_sin(positions, hidden.dtype)
        caches = []
        for place, layer in enumerate(self.layers):
            if past:
                hidden, cache = layer(hidden, freqs, past=past[place], mask=mask)
                caches.append(cache)
            else:
                hidden = layer(hidden, freqs, mask=mask)
        return hidden, caches

    def _logits(self, hidden: TensorValue) -> TensorValue:
        if self.return_logits is ReturnLogits.LAST_TOKEN:
            hidden = hidden[:, -1]
        logits = cast("TensorValue", self.lm_head(self.norm(hidden)))
        return logits if self.logits_scaling == 1.0 else logits / self.logits_scaling
