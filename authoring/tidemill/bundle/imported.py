"""An ONNX model of anybody's turned into a bundle: its initializers become a safetensors file."""

from __future__ import annotations

import math
import mmap
from collections.abc import Iterator, Mapping
from os import PathLike
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from tidemill.bundle.bundle import Bundle, GraphPart
from tidemill.bundle.foreign import data_files, signature
from tidemill.bundle.graphs import read_graph, subgraphs
from tidemill.bundle.manifest import MAIN_GRAPH
from tidemill.bundle.stored import check_inside
from tidemill.dtype import DType
from tidemill.errors import InvalidBundle
from tidemill.protocol.types import Array

__all__ = ["import_model"]

_SMALL = 1024
"""Bytes; constants below this are in the graph: ONNX Runtime resolves branches without finding files beside it."""
_FIRST_WITH_CONSTANTS = 4
"""The IR version from which an initializer need not be an input."""


def import_model(path: str | PathLike[str], name: str | None = None) -> Bundle:
    """Read an ONNX file whose initializers are embedded or in files beside it.

    Args:
        path: The file.
        name: The model's name; by default the graph's.

    Returns:
        A bundle to be written. Large initializers are its weights; their bytes are mapped, not read.

    Raises:
        InvalidBundle: It is no ONNX model, its data lies outside of its folder or of a file, or an input or output is
            no tensor of known rank and element type.
    """
    file = Path(path)
    try:
        check_inside(file.parent, file.name)
        data_files(file)
        model = read_graph(file)
        inputs, outputs = signature(model)
        _make_constant(model)
        weights = dict(_take_weights(file.parent, model))
    except InvalidBundle as error:
        raise InvalidBundle(f"{file}: {error}") from None
    part = GraphPart(model, inputs, outputs)
    producer = f"{model.producer_name} {model.producer_version}".strip()
    return Bundle(name or model.graph.name or file.stem, {MAIN_GRAPH: part}, weights, source=producer)


def _make_constant(model: onnx.ModelProto) -> None:
    """Drop inputs that stand for initializers: nobody sends them, and the runtime would not optimise with them."""
    weights = {tensor.name for tensor in model.graph.initializer}
    inputs = [value for value in model.graph.input if value.name not in weights]
    del model.graph.input[:]
    model.graph.input.extend(inputs)
    model.ir_version = max(model.ir_version, _FIRST_WITH_CONSTANTS)


def _take_weights(folder: Path, model: onnx.ModelProto) -> Iterator[tuple[str, Array]]:
    """Take the large initializers out of a model; other data that lies outside of the file goes into it."""
    maps: dict[str, memoryview] = {}
    for tensor in model.graph.initializer:
        if _is_storable(tensor.data_type):
            array = _external(folder, tensor, maps) if _is_external(tensor) else numpy_helper.to_array(tensor)
            if array.nbytes >= _SMALL:
                yield tensor.name, array
                tensor.CopyFrom(TensorProto(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims))
                tensor.data_location = TensorProto.EXTERNAL
    for tensor in _tensors(model):
        if _is_external(tensor) and tensor.external_data:
            tensor.raw_data = bytes(_data(folder, tensor, maps))
            tensor.data_location = TensorProto.DEFAULT
            del tensor.external_data[:]


def _external(folder: Path, tensor: TensorProto, maps: dict[str, memoryview]) -> Array:
    data = _data(folder, tensor, maps)
    dtype = DType.from_onnx(tensor.data_type)
    if len(data) != math.prod(tensor.dims) * dtype.size_in_bytes:
        raise InvalidBundle(f"tensor {tensor.name!r} of shape {list(tensor.dims)} has {len(data)} bytes of data")
    return np.frombuffer(data, dtype.to_numpy()).reshape(tuple(tensor.dims))


def _data(folder: Path, tensor: TensorProto, maps: dict[str, memoryview]) -> memoryview:
    place: Mapping[str, str] = {entry.key: entry.value for entry in tensor.external_data}
    location = place["location"]
    if location not in maps:
        with (folder / location).open("rb") as file:
            size = check_inside(folder, location)
            maps[location] = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if size else b"")
    begin = int(place.get("offset", 0))
    length = int(place.get("length", len(maps[location]) - begin))
    return maps[location][begin : begin + length]


def _is_external(tensor: TensorProto) -> bool:
    return tensor.data_location == TensorProto.EXTERNAL


def _is_storable(data_type: int) -> bool:
    return any(dtype.safetensors and dtype.onnx == data_type for dtype in DType)


def _tensors(model: onnx.ModelProto) -> Iterator[TensorProto]:
    nodes = [node for function in model.functions for node in function.node]
    graphs = [model.graph]
    while graphs or nodes:
        if graphs:
            graph = graphs.pop()
            yield from graph.initializer
            nodes += graph.node
        else:
            node = nodes.pop()
            graphs += subgraphs(node)
            for attribute in node.attribute:
                yield from (attribute.t, *attribute.tensors) if attribute.HasField("t") else attribute.tensors
