"""Points a graph's weights at byte ranges of a safetensors file; moves no weight's bytes."""

from __future__ import annotations

from collections.abc import Mapping

import onnx

from tidemill.dtype import DType
from tidemill.weights.check import WeightKeys, WeightSpec
from tidemill.weights.checkpoint import Located
from tidemill.weights.header import TensorEntry

__all__ = ["bind_weights", "serialize_model", "weight_specs"]

_MAX_MODEL_BYTES = 2**31 - 1  # protobuf's limit


def weight_specs(model: onnx.ModelProto) -> dict[str, WeightSpec]:
    """The weights that a graph expects: its initializers whose data is external."""
    return {
        tensor.name: WeightSpec(DType.from_onnx(tensor.data_type), tuple(tensor.dims))
        for tensor in model.graph.initializer
        if _is_weight(tensor)
    }


def bind_weights(model: onnx.ModelProto, located: Mapping[str, Located], keys: WeightKeys) -> onnx.ModelProto:
    """A copy of the model in which every weight names its range of a file.

    Args:
        model: The traced model; not changed.
        located: The file beside the model and the range in it by key; they have been checked against the model.
        keys: How weight names lead to keys.
    """
    bound = onnx.ModelProto()
    bound.CopyFrom(model)
    for tensor in bound.graph.initializer:
        if _is_weight(tensor):
            _point(tensor, *located[keys.find(tensor.name, located) or tensor.name])
    return bound


def serialize_model(key: str, model: onnx.ModelProto) -> bytes:
    """The bytes of an ONNX file, always the same for the same model.

    Raises:
        ValueError: They are over protobuf's limit of 2 GiB.
    """
    size = model.ByteSize()
    if size > _MAX_MODEL_BYTES:
        raise ValueError(
            f"graph {key!r} takes {size} bytes without its weights, over protobuf's limit of {_MAX_MODEL_BYTES}; "
            "make its large constants weights"
        )
    text: bytes = model.SerializeToString(deterministic=True)
    return text


def _is_weight(tensor: onnx.TensorProto) -> bool:
    return tensor.data_location == onnx.TensorProto.EXTERNAL


def _point(tensor: onnx.TensorProto, location: str, entry: TensorEntry) -> None:
    del tensor.external_data[:]
    for key, value in {"location": location, "offset": entry.offset, "length": entry.length}.items():
        tensor.external_data.add(key=key, value=str(value))
