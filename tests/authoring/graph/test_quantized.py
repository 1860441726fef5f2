from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tidemill.dtype import DType
from tidemill.graph import Graph, QuantizationConfig, QuantizationEncoding, TensorType, ops
from tidemill.protocol import Array

Check = Callable[..., Any]

RNG = np.random.default_rng(9)
F32 = np.float32
Q = QuantizationEncoding


def half(block: Array, at: int) -> Any:
    return F32(block[at : at + 2].view(np.float16)[0])


def q4_0(block: Array) -> Array:
    packed = block[2:18].astype(np.int32)
    return (np.concatenate([packed & 15, packed >> 4]) - 8).astype(F32) * half(block, 0)


def scales_and_minima(packed: Array) -> list[tuple[int, int]]:
    q = packed.astype(int)
    first = [(q[j] & 63, q[j + 4] & 63) for j in range(4)]
    return first + [((q[j + 4] & 15) | (q[j - 4] >> 6) << 4, (q[j + 4] >> 4) | (q[j] >> 6) << 4) for j in range(4, 8)]


def k_block(block: Array, codes: Array) -> Array:
    parts = zip(codes.reshape(8, 32), scales_and_minima(block[4:16]), strict=True)
    rows = [half(block, 0) * F32(scale) * part - half(block, 2) * F32(low) for part, (scale, low) in parts]
    return np.concatenate(rows)


def q4_k(block: Array) -> Array:
    rows = block[16:144].reshape(4, 32)
    return k_block(block, np.stack([rows & 15, rows >> 4], 1).astype(F32))


def q5_k(block: Array) -> Array:
    rows, high = block[48:176].reshape(4, 32), block[16:48]
    codes = np.stack([rows & 15, rows >> 4], 1).reshape(8, 32).astype(F32)
    return k_block(block, codes + 16 * np.stack([(high >> bit) & 1 for bit in range(8)]).astype(F32))


def q6_k(block: Array) -> Array:
    out = np.zeros(256, F32)
    scales = block[192:208].view(np.int8)
    for part in range(2):
        low, high = block[part * 64 :][:64].astype(int), block[128 + part * 32 :][:32].astype(int)
        for i in range(32):
            codes = (
                (low[i] & 15) | (high[i] & 3) << 4,
                (low[i + 32] & 15) | (high[i] >> 2 & 3) << 4,
                low[i] >> 4 | (high[i] >> 4 & 3) << 4,
                low[i + 32] >> 4 | (high[i] >> 6 & 3) << 4,
            )
            for row, code in enumerate(codes):
                scale = F32(scales[part * 8 + row * 2 + i // 16])
                out[part * 128 + row * 32 + i] = half(block, 208) * scale * F32(code - 32)
    return out


DECODE = {Q.Q4_0: q4_0, Q.Q4_K: q4_k, Q.Q5_K: q5_k, Q.Q6_K: q6_k}
HALVES = {Q.Q4_0: [0], Q.Q4_K: [0, 2], Q.Q5_K: [0, 2], Q.Q6_K: [208]}


def random_blocks(encoding: Q, *shape: int) -> Array:
    """Random bytes with float16 scales that are finite, zero and subnormal ones among them."""
    blocks = RNG.integers(0, 256, (*shape, encoding.block_size), np.uint8)
    for at in HALVES[encoding]:
        scales = RNG.standard_normal(shape).astype(np.float16)
        scales.ravel()[:3] = [0.0, -6e-8, 5e-5]
        blocks[..., at : at + 2] = scales[..., None].view(np.uint8)
    return blocks


def decoded(encoding: Q, blocks: Array) -> Array:
    rows = [DECODE[encoding](block) for block in blocks.reshape(-1, encoding.block_size)]
    return np.array(rows).reshape(*blocks.shape[:-2], -1)


@pytest.mark.parametrize("encoding", list(DECODE))
@pytest.mark.parametrize("shape", [(2, 3), (2, 2, 1)])
def test_dequantize_gives_llama_cpp_s_numbers_bit_for_bit(check_op: Check, encoding: Q, shape: tuple[int, ...]) -> None:
    blocks = random_blocks(encoding, *shape)
    (out,) = check_op(
        lambda x: ops.dequantize(encoding, x),
        blocks.reshape(*shape[:-1], -1),
        expect=decoded(encoding, blocks),
        dims=[("n", *shape[1:-1], shape[-1] * encoding.block_size)],
    )
    np.testing.assert_array_equal(out, decoded(encoding, blocks))


@pytest.mark.parametrize("encoding", list(DECODE))
@pytest.mark.parametrize("lead", [(), (3,), (2, 3)])
def test_qmatmul_multiplies_by_the_transposed_weight(check_op: Check, encoding: Q, lead: tuple[int, ...]) -> None:
    blocks = random_blocks(encoding, 5, 2)
    x = RNG.standard_normal((*lead, 2 * encoding.elements_per_block)).astype(F32)
    check_op(
        lambda x, weight: ops.qmatmul(encoding, None, x, weight),
        *(x, blocks.reshape(5, -1)),
        expect=x @ decoded(encoding, blocks).T,
        dims=[(*"nm"[: len(lead)], x.shape[-1]), (5, 2 * encoding.block_size)],
        tolerance=(1e-3, 2e-3) if encoding is Q.Q4_0 else (1e-3, 2.0),
        reference=encoding is not Q.Q4_0,  # MatMulNBits is ONNX Runtime's
    )


def packed(codes: Array, axis: int) -> Array:
    """Eight codes in each int32, the first in the lowest bits."""
    eights = np.moveaxis(codes, axis, -1).reshape(*np.moveaxis(codes, axis, -1).shape[:-1], -1, 8).astype(np.uint32)
    words = (eights << np.arange(0, 32, 4, dtype=np.uint32)).sum(-1, dtype=np.uint32).view(np.int32)
    return np.ascontiguousarray(np.moveaxis(words, -1, axis))


@pytest.mark.parametrize("group", [8, 32])
@pytest.mark.parametrize("sym", [True, False])
@pytest.mark.parametrize("desc_act", [True, False])
@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_gptq_checkpoints_are_used_as_they_are(
    check_op: Check, group: int, sym: bool, desc_act: bool, dtype: Any
) -> None:
    size, out = 64, 16
    codes = RNG.integers(0, 16, (size, out))
    scales = RNG.random((size // group, out)).astype(dtype)
    zeros = np.full((size // group, out), 8) if sym else RNG.integers(1, 16, (size // group, out))
    index = RNG.permutation(size) // group if desc_act else np.arange(size) // group
    x = RNG.standard_normal((3, size)).astype(F32)
    weight = (codes - zeros[index]).astype(F32) * scales[index].astype(F32)
    config = QuantizationConfig("gptq", 4, group, desc_act, sym)
    tensors = [packed(codes, 0), scales]
    tensors += [] if sym else [packed(zeros - 1, 1)]
    tensors += [index.astype(np.int32)] if desc_act else []
    check_op(
        lambda x, *tensors: ops.qmatmul(Q.GPTQ, config, x, *tensors),
        *(x, *tensors),
        expect=x @ weight,
        tolerance=(1e-3, 1e-3),
        reference=not sym or desc_act or group == 8,  # MatMulNBits is ONNX Runtime's
    )


def test_weights_that_stay_narrow_are_said_to() -> None:
    types = [TensorType(DType.float32, ["n", 64]), TensorType(DType.uint8, [8, 36])]
    graph = Graph("narrow", lambda x, weight: ops.qmatmul(Q.Q4_0, None, x, weight), types)
    assert graph.output_types == [TensorType(DType.float32, ["n", 8])]
    assert graph.body.nodes[-1].op == "MatMulNBits"


X, W = TensorType(DType.float32, ["n", 64]), TensorType(DType.uint8, [8, 36])
ORDERED = QuantizationConfig("gptq", 4, 32, sym=True)


@pytest.mark.parametrize(
    ("build", "error", "message"),
    [
        (lambda x, w: ops.dequantize(Q.GPTQ, w), ValueError, "GPTQ is not one of Q4_0, Q4_K, Q5_K, Q6_K"),
        (lambda x, w: ops.dequantize(Q.Q4_0, x), TypeError, "must be uint8"),
        (lambda x, w: ops.dequantize(Q.Q4_K, w), ValueError, r"\(36\) not divisible by block size \(144\)"),
        (lambda x, w: ops.dequantize(Q.Q4_0, w.rebind([8, "k"])), TypeError, "static last dimension"),
        (lambda x, w: ops.qmatmul(Q.Q4_0, None, x.cast(DType.float16), w), TypeError, "must be float32"),
        (lambda x, w: ops.qmatmul(Q.Q4_0, None, x, w, w), TypeError, "must be one matrix"),
        (lambda x, w: ops.qmatmul(Q.Q4_0, None, x, w[:, :18]), ValueError, "the last dim of lhs"),
        (lambda x, w: ops.qmatmul(Q.GPTQ, None, x, w), NotImplementedError, "bits=4"),
        (lambda x, w: ops.qmatmul(Q.GPTQ, ORDERED, x, w), ValueError, "takes the checkpoint's tensors qweight, scales"),
        (
            lambda x, w: ops.qmatmul(Q.GPTQ, ORDERED, x, w.cast(DType.int32), x),
            ValueError,
            "with in = 64, a multiple of group_size=32",
        ),
    ],
)
def test_what_does_not_fit_is_refused(build: Callable[..., Any], error: type[Exception], message: str) -> None:
    with Graph("wrong", input_types=[X, W.with_shape([7, 36]) if "with in" in message else W]) as graph:
        x, weight = (value.tensor for value in graph.inputs)
        with pytest.raises(error, match=message):
            build(x, weight)


def test_gptq_has_no_blocks() -> None:
    with pytest.raises(ValueError, match="its group size is in QuantizationConfig"):
        _ = Q.GPTQ.block_size
