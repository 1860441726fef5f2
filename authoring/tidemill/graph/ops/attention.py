"""Attention: for every query the mean of the values, weighted by how well the query matches each key."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tidemill.dtype import DType
from tidemill.graph.context import as_tensor, current
from tidemill.graph.dim import Dim, StaticDim
from tidemill.graph.fault import op_fault
from tidemill.graph.ops.activation import softmax
from tidemill.graph.ops.arange import range as range_of
from tidemill.graph.ops.elementwise import add, div, greater_equal, mul, tanh, where
from tidemill.graph.ops.linalg import matmul
from tidemill.graph.ops.promote import TensorLike
from tidemill.graph.ops.shaping import broadcast_to, concat, reshape, transpose, unsqueeze
from tidemill.graph.type import TensorType

if TYPE_CHECKING:
    from tidemill.graph.value import TensorValue

__all__ = ["attention", "cached_attention"]


def attention(
    query: TensorLike,
    key: TensorLike,
    value: TensorLike,
    mask: TensorLike | None = None,
    *,
    scale: float | None = None,
    causal: bool = False,
    softcap: float = 0.0,
) -> TensorValue:
    """softmax(query @ key.T * scale + mask) @ value (Vaswani et al., 2017).

    ONNX's Attention of opset 23; float64 is composed of smaller operators, since ONNX Runtime would compute it in
    float32. A query that may look at nothing gives zeros. ONNX Runtime fails the run if the batch or a length is 0.

    Args:
        query: [batch, heads, queries, size], floating point.
        key: [batch, kv_heads, keys, size]. `kv_heads` divides `heads`; each key head serves as many query heads.
        value: [batch, kv_heads, keys, value_size].
        mask: Broadcasts to [batch, heads, queries, keys]; bool for "may look at", or numbers that are added.
        scale: What scores are multiplied by; 1 / sqrt(size) by default.
        causal: Whether query `i` may only look at keys up to `i`, counted from the first key.
        softcap: If not 0, scores become `softcap * tanh(score / softcap)` before they are masked.

    Returns:
        [batch, heads, queries, value_size].
    """
    operands = _Operands(*map(as_tensor, (query, key, value)))
    _check(operands)
    return _attend(operands, mask, _Scoring(_scale(operands, scale), causal, softcap))[0]


def cached_attention(
    query: TensorLike,
    key: TensorLike,
    value: TensorLike,
    past: tuple[TensorLike, TensorLike],
    mask: TensorLike | None = None,
    *,
    scale: float | None = None,
    causal: bool = True,
    softcap: float = 0.0,
) -> tuple[TensorValue, TensorValue, TensorValue]:
    """`attention` over the keys and values of earlier calls, then the given ones.

    Args:
        query: [batch, heads, queries, size], floating point.
        key: [batch, kv_heads, queries, size], those of the same tokens as the queries.
        value: [batch, kv_heads, queries, value_size].
        past: Keys [batch, kv_heads, past, size] and values [batch, kv_heads, past, value_size]; `past` may be 0.
        mask: Broadcasts to [batch, heads, queries, past + queries].
        scale: As in `attention`.
        causal: Whether query `i` may only look at the past and at the keys up to `i`.
        softcap: As in `attention`.

    Returns:
        The result, and all keys and values [batch, kv_heads, past + queries, ...] for the next call.
    """
    operands = _Operands(*map(as_tensor, (query, key, value, *past)))
    _check(operands)
    result, keys, values = _attend(operands, mask, _Scoring(_scale(operands, scale), causal, softcap))
    return result, keys, values


@dataclass(frozen=True)
class _Operands:
    query: TensorValue
    key: TensorValue
    value: TensorValue
    past_key: TensorValue | None = None
    past_value: TensorValue | None = None

    @property
    def named(self) -> dict[str, TensorValue]:
        return {name: value for name, value in vars(self).items() if value is not None}

    def present(self) -> tuple[TensorType, TensorType]:
        """The types of all keys and values, those of the past included."""
        if self.past_key is None or self.past_value is None:
            return self.key.type, self.value.type
        pairs = ((self.past_key, self.key), (self.past_value, self.value))
        keys, values = (
            new.type.with_shape([*new.shape[:2], past.shape[2] + new.shape[2], new.shape[3]]) for past, new in pairs
        )
        return keys, values


@dataclass(frozen=True)
class _Scoring:
    scale: float
    causal: bool
    softcap: float


def _scale(operands: _Operands, scale: float | None) -> float:
    size = operands.query.shape[-1]
    if scale is not None:
        return float(scale)
    if not isinstance(size, StaticDim):
        raise op_fault("attention", operands.named, f"the size of a head is {size}; pass scale, or rebind it")
    return float(size.dim**-0.5)


def _attend(operands: _Operands, mask: TensorLike | None, scoring: _Scoring) -> list[TensorValue]:
    """The result, and with a past all keys and values."""
    allowed = None if mask is None else _fitted_mask(operands, as_tensor(mask))
    if operands.query.dtype is DType.float64:
        return _composed(operands, allowed, scoring)
    inputs = [operands.query, operands.key, operands.value, allowed, operands.past_key, operands.past_value]
    while inputs[-1] is None:
        inputs.pop()
    types = [_result_type(operands)]
    if operands.past_key is not None:
        types += operands.present()
    attributes = {"scale": scoring.scale, "is_causal": int(scoring.causal), "softcap": float(scoring.softcap)}
    return current().append("Attention", inputs, types, attributes)


def _composed(operands: _Operands, mask: TensorValue | None, scoring: _Scoring) -> list[TensorValue]:
    keys, values, past = operands.key, operands.value, None
    if operands.past_key is not None and operands.past_value is not None:
        past = operands.past_key.shape[2]
        keys, values = concat([operands.past_key, keys], 2), concat([operands.past_value, values], 2)
    heads = operands.query.shape[1]
    scores = mul(matmul(operands.query, transpose(_repeated(keys, heads), -1, -2)), scoring.scale)
    if scoring.softcap:
        scores = mul(tanh(div(scores, scoring.softcap)), scoring.softcap)
    causal = _causal_mask(scores, past) if scoring.causal else None
    weights = _masked_softmax(scores, [one for one in (mask, causal) if one is not None])
    return [matmul(weights, _repeated(values, heads)), keys, values]


def _masked_softmax(scores: TensorValue, masks: list[TensorValue]) -> TensorValue:
    lowest = float(np.finfo(np.float64).min)
    choices = [mask for mask in masks if mask.dtype is DType.bool]
    for mask in masks:
        scores = where(mask, scores, lowest) if mask.dtype is DType.bool else add(scores, mask)
    weights = softmax(scores, -1)
    # Only matters to queries that may look at nothing: their weights are equal, not zero.
    for mask in choices:
        weights = where(mask, weights, 0.0)
    return weights


def _causal_mask(scores: TensorValue, past: Dim | None) -> TensorValue:
    queries, keys = scores.shape[-2:]
    first = 0 if past is None else keys - queries
    return greater_equal(unsqueeze(range_of(first, first + queries), 1), unsqueeze(range_of(0, keys), 0))


def _repeated(value: TensorValue, heads: Dim) -> TensorValue:
    """[batch, kv_heads, length, size] -> [batch, heads, length, size], each head as often as query heads share it."""
    batch, kv_heads, length, size = value.shape
    if kv_heads == heads:
        return value
    group = heads // kv_heads
    wide = broadcast_to(unsqueeze(value, 2), (batch, kv_heads, group, length, size))
    return reshape(wide, (batch, kv_heads * group, length, size))


def _fitted_mask(operands: _Operands, mask: TensorValue) -> TensorValue:
    """The mask with as many axes and sizes as ONNX Runtime wants: the last two are never 1 by broadcasting."""
    query, keys = operands.query, operands.present()[0].shape[2]
    wanted = [*query.shape[:3], keys]
    fits = mask.rank <= 4 and all(
        dim in (1, goal) for dim, goal in zip(mask.shape, wanted[4 - mask.rank :], strict=True)
    )
    if not fits or mask.dtype not in (DType.bool, query.dtype):
        raise op_fault(
            "attention",
            operands.named | {"mask": mask},
            f"mask must be bool or {query.dtype!r} and broadcast to [batch, heads, queries, keys] = {wanted}; "
            "rebind its dims if they are equal when the model runs",
        )
    lead = mask.shape[: max(mask.rank - 2, 0)]
    return broadcast_to(mask, [*lead, *wanted[2:]]) if mask.shape[-2:] != wanted[2:] else mask


def _result_type(operands: _Operands) -> TensorType:
    query = operands.query
    return query.type.with_shape([*query.shape[:3], operands.value.shape[3]])


def _check(operands: _Operands) -> None:
    """Ranks, dtypes and dims; ValueError names what differs."""
    fault = _rank_fault(operands) or _dim_fault(operands)
    if fault:
        raise op_fault("attention", operands.named, fault)


def _rank_fault(operands: _Operands) -> str:
    given = operands.named
    wrong = [name for name, value in given.items() if value.rank != 4]
    if wrong:
        return f"{wrong[0]} must be [batch, heads, length, size]"
    dtypes = {value.dtype for value in given.values()}
    if len(dtypes) > 1 or not operands.query.dtype.is_float():
        return "all must be floating point and of one dtype; cast them"
    return ""


def _dim_fault(operands: _Operands) -> str:
    query, key, value = operands.query, operands.key, operands.value
    if key.shape[0] != query.shape[0] or key.shape[3] != query.shape[3]:
        return "query and key must agree in batch and size"
    if value.shape[:3] != key.shape[:3]:
        return "key and value must agree in batch, heads and length"
    heads, kv_heads = query.shape[1], key.shape[1]
    static = isinstance(heads, StaticDim) and isinstance(kv_heads, StaticDim)
    if not static or int(heads) % max(int(kv_heads), 1):
        return f"the {kv_heads} key heads must divide the {heads} query heads, and both be known"
    pasts = ((operands.past_key, key), (operands.past_value, value))
    for past, new in pasts:
        if past is not None and (past.shape[:2] != new.shape[:2] or past.shape[3] != new.shape[3]):
            return "past keys and values must agree with the new ones in all but their length"
    return ""
