"""Products with weights of four to six bits, and those weights as floats.

What prepares a weight consists of plain operators on its bytes, so a checkpoint is used as it is; ONNX Runtime runs
them once, when it loads the model.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tidemill.dtype import DType
from tidemill.graph.context import as_tensor, current
from tidemill.graph.dim import Dim, StaticDim
from tidemill.graph.fault import op_fault
from tidemill.graph.ops.bitwise import bitwise_and
from tidemill.graph.ops.blocks import UNPACK, q4_0_parts, shift_right
from tidemill.graph.ops.elementwise import add, mul, sub
from tidemill.graph.ops.indexing import gather, slice_tensor
from tidemill.graph.ops.linalg import matmul
from tidemill.graph.ops.promote import TensorLike, cast_to
from tidemill.graph.ops.shaping import reshape, transpose, unsqueeze
from tidemill.graph.quantization import QuantizationConfig, QuantizationEncoding

if TYPE_CHECKING:
    from tidemill.graph.value import TensorValue

__all__ = ["dequantize", "qmatmul"]

_KERNEL_BLOCKS = (16, 32, 64, 128, 256)
"""The block sizes that MatMulNBits knows."""


def dequantize(encoding: QuantizationEncoding, quantized: TensorLike) -> TensorValue:
    """The numbers that blocks of a GGUF encoding stand for, exactly as llama.cpp computes them.

    Args:
        encoding: Q4_0, Q4_K, Q5_K or Q6_K.
        quantized: uint8 [..., bytes], whose last dim is a whole number of blocks.

    Returns:
        float32 [..., numbers].

    Raises:
        TypeError: `quantized` is not uint8, or its last dim is symbolic.
        ValueError: The encoding has no blocks, or the last dim is not a whole number of them.
    """
    value = as_tensor(quantized)
    if encoding not in UNPACK:
        raise ValueError(
            f"dequantize: {encoding} is not one of {', '.join(one.name for one in UNPACK)}; for GPTQ, qmatmul takes "
            "the checkpoint's tensors"
        )
    blocks = _blocks(encoding, value)
    numbers = UNPACK[encoding](blocks)
    return reshape(numbers, (*value.shape[:-1], blocks.shape[-2] * encoding.elements_per_block))


def qmatmul(
    encoding: QuantizationEncoding, config: QuantizationConfig | None, lhs: TensorLike, *rhs: TensorLike
) -> TensorValue:
    """`lhs @ weight.T` with a quantised weight; `lhs` itself is not quantised.

    Q4_0, and GPTQ with symmetric groups in order, stay four bits wide in memory (MatMulNBits); the others become
    floats when the model is loaded.

    Args:
        encoding: How the weight is packed.
        config: What GPTQ needs to know; None for the others.
        lhs: float32 [..., in].
        *rhs: For Q4_0, Q4_K, Q5_K and Q6_K the weight, uint8 [out, bytes of a row]. For GPTQ the checkpoint's tensors
            as they are: qweight int32 [in / 8, out], scales [groups, out], then qzeros int32 [groups, out / 8] unless
            `config.sym`, then g_idx int32 [in] if `config.desc_act`.

    Returns:
        float32 [..., out].

    Raises:
        TypeError: A dtype is not as above.
        ValueError: A shape or the number of tensors is not.
        NotImplementedError: GPTQ with other than four bits.
    """
    value, tensors = as_tensor(lhs), [as_tensor(one) for one in rhs]
    if value.dtype is not DType.float32:
        raise TypeError(f"Left-hand side must be float32, but got lhs={value!r}; cast it")
    if encoding is QuantizationEncoding.GPTQ:
        return _gptq_matmul(value, tensors, config)
    if len(tensors) != 1 or tensors[0].rank != 2:
        raise TypeError(f"Right-hand side must be one matrix, but got {tensors}")
    if encoding is QuantizationEncoding.Q4_0:
        blocks = _blocks(encoding, tensors[0])
        codes, scale = q4_0_parts(blocks)
        return _four_bit(value, reshape(codes, (blocks.shape[0], -1)), reshape(scale, blocks.shape[:-1]), 32)
    return matmul(value, transpose(dequantize(encoding, tensors[0]), 0, 1))


def _blocks(encoding: QuantizationEncoding, value: TensorValue) -> TensorValue:
    """uint8 [..., blocks, bytes of a block]."""
    if value.dtype is not DType.uint8:
        raise TypeError(f"a weight of {encoding.name} must be uint8, but got {value!r}")
    last = value.shape[-1] if value.rank else Dim("none")
    if not isinstance(last, StaticDim):
        raise TypeError(f"{encoding.name}: only supported with static last dimension, not {last}")
    if last.dim % encoding.block_size:
        raise ValueError(f"last dimension ({last}) not divisible by block size ({encoding.block_size})")
    return reshape(value, (*value.shape[:-1], last.dim // encoding.block_size, encoding.block_size))


def _four_bit(lhs: TensorValue, codes: TensorValue, scales: TensorValue, block: int) -> TensorValue:
    """`lhs @ ((codes - 8) * scales).T` by ONNX Runtime's own kernel.

    Args:
        lhs: float32 [..., in].
        codes: uint8 [out, in], 0 to 15.
        scales: float32 [out, in / block].
        block: How many numbers share a scale.
    """
    out, size = codes.shape
    if not isinstance(out, StaticDim) or not isinstance(size, StaticDim) or lhs.shape[-1] != size:
        raise op_fault(
            "qmatmul",
            {"lhs": lhs, "weight": codes},
            f"the weight is [{out}, {size}]; both must be static, and {size} the last dim of lhs",
        )
    pairs = reshape(codes, (out, size.dim // block, block // 2, 2))
    low, high = slice_tensor(pairs, (..., 0)), slice_tensor(pairs, (..., 1))
    shifted = mul(cast_to(high, DType.int32), 16)
    packed = cast_to(add(cast_to(low, DType.int32), shifted), DType.uint8)
    attributes = {"K": size.dim, "N": out.dim, "bits": 4, "block_size": block}
    type = lhs.type.with_shape((*lhs.shape[:-1], out))
    return current().append("MatMulNBits", [lhs, packed, scales], [type], attributes, "com.microsoft")[0]


def _gptq_matmul(lhs: TensorValue, tensors: list[TensorValue], config: QuantizationConfig | None) -> TensorValue:
    settings = _check_gptq(lhs, tensors, config)
    weight, scales = tensors[0], cast_to(tensors[1], DType.float32)
    codes = _unpacked(weight, axis=0)
    in_order = settings.sym and not settings.desc_act
    if in_order and settings.group_size in _KERNEL_BLOCKS:
        return _four_bit(lhs, transpose(codes, 0, 1), transpose(scales, 0, 1), settings.group_size)
    rows = int(codes.shape[0])
    order = current().constant(np.arange(rows) // settings.group_size)
    groups = tensors[-1] if settings.desc_act else order
    numbers = cast_to(codes, DType.float32)
    # A stored zero is one less than the code that means zero.
    zero = 8 if settings.sym else gather(add(cast_to(_unpacked(tensors[2], axis=1), DType.float32), 1), groups)
    return matmul(lhs, mul(sub(numbers, zero), gather(scales, groups)))


def _check_gptq(lhs: TensorValue, tensors: list[TensorValue], config: QuantizationConfig | None) -> QuantizationConfig:
    if config is None or config.bits != 4:
        raise NotImplementedError(
            f"qmatmul: GPTQ needs a QuantizationConfig with bits=4, not {config}; dequantise other widths when the "
            "checkpoint is converted"
        )
    wanted = ["qweight", "scales", *([] if config.sym else ["qzeros"]), *(["g_idx"] if config.desc_act else [])]
    if len(tensors) != len(wanted) or tensors[0].dtype is not DType.int32:
        raise ValueError(
            f"qmatmul: GPTQ takes the checkpoint's tensors {', '.join(wanted)}, qweight as int32, not {tensors}; a "
            "weight that was packed for the seed's kernels can not be used"
        )
    rows, static = tensors[0].shape[0] * 8, tensors[0].shape.is_static
    if not static or rows != lhs.shape[-1] or int(rows) % config.group_size:
        raise op_fault(
            "qmatmul",
            {"lhs": lhs, "qweight": tensors[0]},
            f"qweight must be [in / 8, out] with in = {lhs.shape[-1]}, a multiple of group_size={config.group_size}",
        )
    return config


def _unpacked(packed: TensorValue, axis: int) -> TensorValue:
    """The eight codes of each int32, the lowest bits first, one after the other along `axis` of a matrix, as uint8."""
    spread = unsqueeze(cast_to(packed, DType.uint32), axis + 1)
    steps = np.arange(0, 32, 4).reshape((8, 1) if axis == 0 else (1, 8))
    codes = cast_to(bitwise_and(shift_right(spread, steps), 15), DType.uint8)
    rows, columns = packed.shape
    return reshape(codes, (rows * 8, columns) if axis == 0 else (rows, columns * 8))
