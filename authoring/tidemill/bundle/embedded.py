"""Weights moved into a flat graph and out of it again, for tools that know only graphs that hold all they need."""

from __future__ import annotations

from pathlib import Path

import onnx
from onnx import TensorProto, numpy_helper

from tidemill.bundle.graphs import read_graph
from tidemill.bundle.inline import inline_functions
from tidemill.bundle.stored import StoredBundle, check_inside
from tidemill.dtype import DType
from tidemill.errors import InvalidBundle
from tidemill.protocol.types import Array

__all__ = ["load_flat", "read_embedded", "split_weights"]

_SMALL = 1024
"""Bytes; constants below this stay in the graph."""

_STORABLE = {dtype.onnx for dtype in DType if dtype.safetensors}


def load_flat(bundle: StoredBundle, file: str) -> onnx.ModelProto:
    """A graph of a bundle without functions and with its weights inside; takes their size in memory.

    Args:
        bundle: The bundle.
        file: The graph's file in it.

    Raises:
        InvalidBundle: The graph is no ONNX model, or a weight's range does not lie in the bundle's files.
    """
    model = inline_functions(read_graph(bundle.path / file))
    _embed(model, bundle.path)
    return model


def read_embedded(path: Path) -> onnx.ModelProto:
    """An ONNX file with the weights that lie beside it read in; raises as `load_flat`."""
    model = read_graph(path)
    _embed(model, path.parent)
    return model


def split_weights(model: onnx.ModelProto) -> dict[str, Array]:
    """Take the weights out of a model; what stays is their names, types and shapes, which is what a bundle binds.

    Returns:
        Arrays by name; BF16 and FP8 in the types of ml_dtypes.
    """
    weights = {}
    for tensor in model.graph.initializer:
        array = numpy_helper.to_array(tensor) if tensor.data_type in _STORABLE else None
        if array is not None and array.nbytes >= _SMALL:
            weights[tensor.name] = array
            tensor.CopyFrom(TensorProto(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims))
            tensor.data_location = TensorProto.EXTERNAL
    return weights


def _embed(model: onnx.ModelProto, folder: Path) -> None:
    for tensor in model.graph.initializer:
        if tensor.data_location == TensorProto.EXTERNAL:
            tensor.raw_data = _read(folder, tensor)
            tensor.data_location = TensorProto.DEFAULT
            del tensor.external_data[:]


def _read(folder: Path, tensor: onnx.TensorProto) -> bytes:
    place = {entry.key: entry.value for entry in tensor.external_data}
    location = place.get("location", "")
    size = check_inside(folder, location)
    offset = int(place.get("offset", 0))
    length = int(place.get("length", size - offset))
    if offset < 0 or length < 0 or offset + length > size:
        raise InvalidBundle(f"weight {tensor.name!r} is said to be bytes {offset} to {offset + length} of {location}")
    with (folder / location).open("rb") as file:
        file.seek(offset)
        content: bytes = file.read(length)
        return content
