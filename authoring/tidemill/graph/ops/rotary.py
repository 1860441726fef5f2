"""Rotary position embedding: pairs of numbers turned by an angle that grows with the position."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidemill.dtype import DType
from tidemill.graph.context import as_tensor, emit
from tidemill.graph.dim import StaticDim
from tidemill.graph.fault import op_fault
from tidemill.graph.ops.elementwise import add, mul, sub
from tidemill.graph.ops.indexing import slice_tensor
from tidemill.graph.ops.promote import TensorLike
from tidemill.graph.ops.shaping import concat, reshape, stack, unsqueeze

if TYPE_CHECKING:
    from tidemill.graph.value import TensorValue

__all__ = ["rotary_embedding"]


def rotary_embedding(x: TensorLike, cos: TensorLike, sin: TensorLike, *, interleaved: bool = False) -> TensorValue:
    """Each pair (a, b) of a vector becomes (a cos - b sin, a sin + b cos) (Su et al., 2021).

    ONNX's RotaryEmbedding of opset 23; float64, which it does not take, is composed of smaller operators.

    Args:
        x: [batch, heads, length, size], floating point.
        cos: [batch, length, pairs], the cosine of each pair's angle at each position. 2 * pairs <= size; numbers
            beyond the pairs stay as they are.
        sin: [batch, length, pairs].
        interleaved: Whether a pair is two neighbours; else one is from the first half, one from the second.

    Returns:
        The shape and dtype of `x`.
    """
    value, cosine, sine = as_tensor(x), as_tensor(cos), as_tensor(sin)
    pairs, size = _check(value, cosine, sine)
    if value.dtype is DType.float64:
        return _composed(value, (cosine, sine), interleaved)
    part = {} if 2 * pairs == size else {"rotary_embedding_dim": 2 * pairs, "num_heads": int(value.shape[1])}
    return emit("RotaryEmbedding", [value, cosine, sine], value.type, interleaved=int(interleaved), **part)


def _composed(value: TensorValue, angles: tuple[TensorValue, TensorValue], interleaved: bool) -> TensorValue:
    cosine, sine = (unsqueeze(angle, 1) for angle in angles)
    pairs = int(cosine.shape[-1])
    turned = slice_tensor(value, (..., slice(0, 2 * pairs)))
    picks = (slice(0, None, 2), slice(1, None, 2)) if interleaved else (slice(0, pairs), slice(pairs, 2 * pairs))
    first, second = (slice_tensor(turned, (..., pick)) for pick in picks)
    halves = [sub(mul(first, cosine), mul(second, sine)), add(mul(first, sine), mul(second, cosine))]
    result = reshape(stack(halves, -1), turned.shape) if interleaved else concat(halves, -1)
    return concat([result, slice_tensor(value, (..., slice(2 * pairs, None)))], -1)


def _check(value: TensorValue, cosine: TensorValue, sine: TensorValue) -> tuple[int, int]:
    given = {"x": value, "cos": cosine, "sin": sine}
    if value.rank != 4 or not value.dtype.is_float() or {cosine.dtype, sine.dtype} != {value.dtype}:
        text = "x must be [batch, heads, length, size], floating point, and cos and sin of its dtype; cast them"
        raise op_fault("rotary_embedding", given, text)
    batch, heads, length, size = value.shape
    wanted = [batch, length, cosine.shape[-1]]
    if cosine.shape != wanted or sine.shape != wanted:
        raise op_fault("rotary_embedding", given, f"cos and sin must both be [batch, length, pairs] = {wanted}")
    pairs = wanted[2]
    known = isinstance(size, StaticDim) and isinstance(pairs, StaticDim) and isinstance(heads, StaticDim)
    if not known or 2 * int(pairs) > int(size):
        raise op_fault("rotary_embedding", given, f"{pairs} pairs do not fit in {size} numbers, or are not known")
    return int(pairs), int(size)
