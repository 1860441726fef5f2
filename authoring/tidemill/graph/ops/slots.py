"""Attention over a cache of fixed size that is written where it lies: ONNX Runtime's GroupQueryAttention."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidemill.dtype import DType
from tidemill.graph.context import as_tensor, current
from tidemill.graph.dim import StaticDim
from tidemill.graph.fault import op_fault
from tidemill.graph.ops.elementwise import add
from tidemill.graph.ops.promote import TensorLike, cast_to
from tidemill.graph.ops.reduction import max as largest

if TYPE_CHECKING:
    from tidemill.graph.value import TensorValue

__all__ = ["slot_attention"]


def slot_attention(
    query: TensorLike,
    key: TensorLike,
    value: TensorLike,
    cache: tuple[TensorLike, TensorLike],
    ends: TensorLike,
    *,
    rotary: tuple[TensorLike, TensorLike] | None = None,
    interleaved: bool = False,
    scale: float = 0.0,
    softcap: float = 0.0,
) -> tuple[TensorValue, TensorValue, TensorValue]:
    """Causal attention of new tokens over a cache with room for more, into which theirs are put.

    com.microsoft's GroupQueryAttention, which only ONNX Runtime has; `cached_attention` is the portable form. Rows may
    have caches of different lengths. Where the caches that come out are bound to the memory of those that go in,
    nothing is copied. On the CPU, rows of more than one new token run one at a time if their caches are not empty.

    Args:
        query: [batch, length, heads * size], float32 or float16, not yet turned by its position.
        key: [batch, length, kv_heads * size], likewise; `kv_heads` divides `heads`.
        value: [batch, length, kv_heads * size].
        cache: Keys and values [batch, kv_heads, capacity, size]; `size` is a multiple of 8, with `rotary` of 16.
        ends: int32 [batch], the position of each row's last new token, counted from 0.
        rotary: Cosines and sines [positions, size / 2] that queries and keys are turned by; None for none.
        interleaved: Whether a turned pair is two neighbours; else one is from the first half, one from the second.
        scale: What scores are multiplied by; 1 / sqrt(size) for 0.
        softcap: If not 0, scores become `softcap * tanh(score / softcap)`.

    Returns:
        The result [batch, length, heads * size], and the caches with the new tokens in them.
    """
    tensors = [as_tensor(one) for one in (query, key, value, *cache)]
    places = as_tensor(ends)
    kv_heads, size = _check(tensors, places, 8 if rotary is None else 16)
    total = cast_to(add(largest(places, axis=0), 1), DType.int32)
    angles = [as_tensor(one) for one in rotary] if rotary else []
    attributes = {
        "num_heads": int(tensors[0].shape[2]) // size,
        "kv_num_heads": kv_heads,
        "scale": float(scale),
        "softcap": float(softcap),
        "do_rotary": int(rotary is not None),
        "rotary_interleaved": int(interleaved),
    }
    types = [tensors[0].type, tensors[3].type, tensors[4].type]
    inputs = [*tensors, places, total, *angles]
    result, keys, values = current().append("GroupQueryAttention", inputs, types, attributes, "com.microsoft")
    return result, keys, values


def _check(tensors: list[TensorValue], ends: TensorValue, multiple: int) -> tuple[int, int]:
    """The number of key heads and the size of a head; ValueError names what does not fit."""
    query, key, value, keys, values = tensors
    given = dict(zip(("query", "key", "value", "keys", "values"), tensors, strict=True)) | {"ends": ends}
    if [one.rank for one in (*tensors, ends)] != [3, 3, 3, 4, 4, 1] or ends.dtype is not DType.int32:
        text = "query, key and value must be [batch, length, heads * size], caches of rank 4, and ends int32 [batch]"
        raise op_fault("slot_attention", given, text)
    if len({one.dtype for one in tensors}) > 1 or query.dtype not in (DType.float32, DType.float16):
        raise op_fault("slot_attention", given, "all must be float32, or all float16; cast them")
    kv_heads, size, width = keys.shape[1], keys.shape[3], query.shape[2]
    if not all(isinstance(dim, StaticDim) for dim in (kv_heads, size, width)):
        raise op_fault("slot_attention", given, "the number of heads and their size must be known")
    if keys.shape != values.shape or not key.shape[2] == value.shape[2] == kv_heads * size:
        raise op_fault("slot_attention", given, "the last dim of key and value must be kv_heads * size of the caches")
    if int(size) % multiple:
        text = f"the size of a head is {size}; the kernel wants a multiple of {multiple}"
        raise op_fault("slot_attention", given, text)
    if int(width) % (int(kv_heads) * int(size)):
        raise op_fault("slot_attention", given, f"the {kv_heads} key heads of {size} must divide the query's {width}")
    return int(kv_heads), int(size)
