"""Matrices of a flat graph in blocks of 4-bit values; whether that is exact enough is not known here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tidemill.bundle.graphs import subgraphs
from tidemill.protocol.types import Array

__all__ = ["quantize_blocks", "use_int4_blocks"]

_SMALL = 1024
_LEVELS = 15
_RUNTIME_DOMAIN = "com.microsoft"


def use_int4_blocks(model: onnx.ModelProto, block_size: int = 32) -> int:
    """Put matrix products with a constant float32 matrix on 4-bit weights, each block with a scale and a zero point.

    The operator is ONNX Runtime's MatMulNBits.

    Args:
        model: A flat model that holds its weights; changed in place.
        block_size: Weights that share a scale: a power of 2, 16 or more.

    Returns:
        How many products were changed.
    """
    matrices = {tensor.name: tensor for tensor in model.graph.initializer if _is_matrix(tensor)}
    nodes: list[onnx.NodeProto] = []
    blocks: dict[str, list[onnx.TensorProto]] = {}
    changed = 0
    for node in model.graph.node:
        if not _multiplies(node, matrices):
            nodes.append(node)
            continue
        rows, form = _rows(node, matrices[node.input[1]])
        if form not in blocks:
            blocks[form] = list(_block_tensors(rows, block_size, form))
        nodes.extend(_block_product(node, form, rows.shape, block_size))
        changed += 1
    model.graph.ClearField("node")
    model.graph.node.extend(nodes)
    model.graph.initializer.extend(tensor for tensors in blocks.values() for tensor in tensors)
    _drop_unused(model.graph)
    if changed and all(entry.domain != _RUNTIME_DOMAIN for entry in model.opset_import):
        model.opset_import.append(helper.make_opsetid(_RUNTIME_DOMAIN, 1))
    return changed


def quantize_blocks(rows: Array, block_size: int) -> tuple[Array, Array, Array]:
    """Round each block of each row to 16 levels between its least and its greatest value, of which 0 is one.

    Args:
        rows: float32 [N, K].
        block_size: Values of a row that share a scale; the last block is filled up with 0.

    Returns:
        Two values a byte, the first in the low bits, uint8 [N, blocks, block_size / 2]; scales, float32 [N * blocks];
        zero points, two a byte, uint8 [N * ceil(blocks / 2)].
    """
    count, width = rows.shape
    blocks = -(-width // block_size)
    values = np.pad(rows, ((0, 0), (0, blocks * block_size - width))).reshape(count, blocks, block_size)
    least, greatest = np.minimum(values.min(-1), 0), np.maximum(values.max(-1), 0)
    scales = (greatest - least) / np.float32(_LEVELS)
    scales[scales == 0] = 1
    zeros = np.clip(np.rint(-least / scales), 0, _LEVELS).astype(np.uint8)
    levels = np.clip(np.rint(values / scales[..., None]) + zeros[..., None], 0, _LEVELS).astype(np.uint8)
    return _pack(levels), scales.ravel(), _pack(np.pad(zeros, ((0, 0), (0, blocks % 2)))).ravel()


def _pack(levels: Array) -> Array:
    packed: Array = levels[..., 0::2] | (levels[..., 1::2] << 4)
    return packed


def _rows(node: onnx.NodeProto, matrix: onnx.TensorProto) -> tuple[Array, str]:
    """The matrix with the axis that is summed over last, and the name of its 4-bit form."""
    weight = numpy_helper.to_array(matrix)
    if _attribute(node, "transB", 0):
        return weight, f"{matrix.name}.int4"
    return weight.T, f"{matrix.name}.int4.transposed"


def _block_tensors(rows: Array, block_size: int, form: str) -> Iterator[onnx.TensorProto]:
    for part, array in zip(("values", "scales", "zeros"), quantize_blocks(rows, block_size), strict=True):
        yield numpy_helper.from_array(array, f"{form}.{part}")


def _block_product(
    node: onnx.NodeProto, form: str, shape: tuple[int, ...], block_size: int
) -> Iterator[onnx.NodeProto]:
    bias = node.input[2] if len(node.input) > 2 else ""
    product = f"{node.output[0]}.product" if bias else node.output[0]
    yield helper.make_node(
        "MatMulNBits",
        [node.input[0], *(f"{form}.{part}" for part in ("values", "scales", "zeros"))],
        [product],
        node.name,
        domain=_RUNTIME_DOMAIN,
        N=shape[0],
        K=shape[1],
        bits=4,
        block_size=block_size,
    )
    if bias:
        yield helper.make_node("Add", [product, bias], [node.output[0]], f"{node.name}.bias")


def _is_matrix(tensor: onnx.TensorProto) -> bool:
    return tensor.data_type == TensorProto.FLOAT and len(tensor.dims) == 2 and len(tensor.raw_data) >= _SMALL


def _multiplies(node: onnx.NodeProto, matrices: Mapping[str, onnx.TensorProto]) -> bool:
    """Whether the node is `x @ matrix` or `x @ matrix.T`, with or without a bias."""
    if node.domain or node.op_type not in ("MatMul", "Gemm") or node.input[1] not in matrices:
        return False
    scaled = any(_attribute(node, name, 1.0) != 1.0 for name in ("alpha", "beta"))
    return not scaled and not _attribute(node, "transA", 0)


def _attribute(node: onnx.NodeProto, name: str, default: float) -> float:
    found = next((attribute for attribute in node.attribute if attribute.name == name), None)
    return default if found is None else float(helper.get_attribute_value(found))


def _drop_unused(graph: onnx.GraphProto) -> None:
    used = _used_names(graph)
    kept = [tensor for tensor in graph.initializer if tensor.name in used]
    graph.ClearField("initializer")
    graph.initializer.extend(kept)


def _used_names(graph: onnx.GraphProto) -> set[str]:
    used = {value.name for value in graph.output}
    for node in graph.node:
        used.update(node.input)
        for body in subgraphs(node):
            used |= _used_names(body)
    return used
