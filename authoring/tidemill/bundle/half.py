"""Weights of a flat graph stored in 16 bits; whether that is exact enough is not known here."""

from __future__ import annotations

import onnx
from onnx import TensorProto, helper, numpy_helper

from tidemill.dtype import DType

__all__ = ["store_as"]

_SMALL = 1024
"""Bytes; biases and scales below this stay as they are."""


def store_as(model: onnx.ModelProto, dtype: DType) -> int:
    """Keep float32 weights in another type; each is widened again before it is used, so arithmetic stays float32.

    Args:
        model: A flat model that holds its weights; changed in place.
        dtype: float16 or bfloat16.

    Returns:
        How many weights were changed.
    """
    casts = []
    for tensor in model.graph.initializer:
        if tensor.data_type != TensorProto.FLOAT or len(tensor.raw_data) < _SMALL:
            continue
        wide = tensor.name
        narrow = numpy_helper.to_array(tensor).astype(dtype.to_numpy())
        tensor.CopyFrom(numpy_helper.from_array(narrow, f"{wide}.{dtype.name}"))
        casts.append(helper.make_node("Cast", [tensor.name], [wide], f"{wide}.Cast", to=TensorProto.FLOAT))
    nodes = [*casts, *model.graph.node]
    model.graph.ClearField("node")
    model.graph.node.extend(nodes)
    return len(casts)
