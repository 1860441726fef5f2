"""The block formats of GGUF files, unpacked with plain operators to exactly the numbers that llama.cpp computes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from tidemill.dtype import DType
from tidemill.graph.context import current, emit
from tidemill.graph.ops.bitwise import bitwise_and
from tidemill.graph.ops.elementwise import add, mul, sub, where
from tidemill.graph.ops.indexing import gather, slice_tensor
from tidemill.graph.ops.promote import broadcast_shape, cast_to
from tidemill.graph.ops.shaping import concat, reshape, stack, unsqueeze
from tidemill.graph.quantization import QuantizationEncoding

if TYPE_CHECKING:
    from tidemill.graph.value import TensorValue

__all__ = ["UNPACK", "q4_0_parts", "shift_right"]


def q4_0_parts(blocks: TensorValue) -> tuple[TensorValue, TensorValue]:
    """The codes 0 to 15 as uint8 [..., 32], 8 of which is zero, and the scale [..., 1] of each block [..., 18]."""
    packed = _bytes(blocks, 2, 18)
    return concat([_low(packed), _high(packed)], -1), _half(_bytes(blocks, 0, 2))


def shift_right(value: TensorValue, bits: np.ndarray[tuple[int, ...], np.dtype[np.generic]]) -> TensorValue:
    """Unsigned integers shifted right; `bits` broadcasts against them."""
    counts = current().constant(bits.astype(value.dtype.to_numpy()))
    shape = broadcast_shape("shift_right", value, counts)
    return emit("BitShift", [value, counts], value.type.with_shape(shape), direction="RIGHT")


def _q4_0(blocks: TensorValue) -> TensorValue:
    codes, scale = q4_0_parts(blocks)
    return mul(sub(_float(codes), 8), scale)


def _q4_k(blocks: TensorValue) -> TensorValue:
    return _scaled(blocks, _float(_nibbles(_bytes(blocks, 16, 144))))


def _q5_k(blocks: TensorValue) -> TensorValue:
    # Bit j of byte i is the fifth bit of number i in part j.
    high = bitwise_and(shift_right(unsqueeze(_bytes(blocks, 16, 48), -2), np.arange(8).reshape(8, 1)), 1)
    return _scaled(blocks, add(_float(_nibbles(_bytes(blocks, 48, 176))), mul(_float(high), 16)))


def _q6_k(blocks: TensorValue) -> TensorValue:
    lead = blocks.shape[:-1]
    packed = reshape(_bytes(blocks, 0, 128), (*lead, 2, 2, 32))
    low = concat([_low(packed), _high(packed)], -2)
    pairs = reshape(_bytes(blocks, 128, 192), (*lead, 2, 1, 32))
    high = bitwise_and(shift_right(pairs, np.arange(0, 8, 2).reshape(4, 1)), 3)
    codes = sub(add(_float(low), mul(_float(high), 16)), 32)
    scale = mul(_signed(_bytes(blocks, 192, 208)), _half(_bytes(blocks, 208, 210)))
    numbers = mul(reshape(scale, (*lead, 16, 1)), reshape(codes, (*lead, 16, 16)))
    return reshape(numbers, (*lead, 256))


UNPACK: dict[QuantizationEncoding, Callable[[TensorValue], TensorValue]] = {
    QuantizationEncoding.Q4_0: _q4_0,
    QuantizationEncoding.Q4_K: _q4_k,
    QuantizationEncoding.Q5_K: _q5_k,
    QuantizationEncoding.Q6_K: _q6_k,
}
"""What turns blocks, uint8 [..., bytes of a block], into numbers, float32 [..., numbers of a block]."""


def _scaled(blocks: TensorValue, codes: TensorValue) -> TensorValue:
    """Codes [..., 8, 32] of which each part of 32 has a scale and a minimum of six bits."""
    lead = blocks.shape[:-1]
    first, second, third = (_bytes(blocks, start, start + 4) for start in (4, 8, 12))
    scales = concat([_float(_masked(first, 63)), _joined(_low(third), first)], -1)
    minima = concat([_float(_masked(second, 63)), _joined(_high(third), second)], -1)
    scale = mul(_half(_bytes(blocks, 0, 2)), scales)
    minimum = mul(_half(_bytes(blocks, 2, 4)), minima)
    numbers = sub(mul(unsqueeze(scale, -1), codes), unsqueeze(minimum, -1))
    return reshape(numbers, (*lead, 256))


def _nibbles(packed: TensorValue) -> TensorValue:
    """[..., 128] bytes as [..., 8, 32] codes: 32 low halves, then their 32 high halves."""
    lead = packed.shape[:-1]
    rows = reshape(packed, (*lead, 4, 32))
    return reshape(stack([_low(rows), _high(rows)], -2), (*lead, 8, 32))


def _joined(low: TensorValue, high: TensorValue) -> TensorValue:
    """Six bits: four of `low`, and the two at the top of `high`."""
    return add(_float(low), mul(_float(shift_right(high, np.array(6))), 16))


def _half(pair: TensorValue) -> TensorValue:
    """Little endian float16 in two bytes [..., 2] as float32 [..., 1]; ONNX can not reinterpret bytes."""
    low, high = _bytes(pair, 0, 1), _bytes(pair, 1, 2)
    exponents = np.arange(64) % 32
    signs = np.where(np.arange(64) < 32, 1.0, -1.0)
    steps = signs * np.exp2(np.maximum(exponents, 1) - 25.0)
    hidden = np.where(exponents > 0, 1024.0, 0.0)
    place = cast_to(shift_right(high, np.array(2)), DType.int32)
    step, one = (gather(current().constant(table.astype(np.float32)), place) for table in (steps, hidden))
    mantissa = add(mul(_float(_masked(high, 3)), 256), _float(low))
    return mul(add(mantissa, one), step)


def _signed(value: TensorValue) -> TensorValue:
    number = _float(value)
    return where(number > 127, sub(number, 256), number)


def _bytes(blocks: TensorValue, start: int, stop: int) -> TensorValue:
    return slice_tensor(blocks, (..., slice(start, stop)))


def _float(value: TensorValue) -> TensorValue:
    return cast_to(value, DType.float32)


def _masked(value: TensorValue, mask: int) -> TensorValue:
    return bitwise_and(value, mask)


def _low(value: TensorValue) -> TensorValue:
    return _masked(value, 15)


def _high(value: TensorValue) -> TensorValue:
    return shift_right(value, np.array(4))
