"""A folder with a plain model.onnx, read as if it were a bundle; its signature comes from the ONNX file."""

from __future__ import annotations

from os import PathLike
from pathlib import Path

import onnx

from tidemill.bundle.graphs import read_graph
from tidemill.bundle.manifest import MAIN_GRAPH, BundleManifest, GraphEntry
from tidemill.bundle.ranges import external_data
from tidemill.bundle.stored import StoredBundle, check_inside, file_entry
from tidemill.dtype import DType
from tidemill.errors import InvalidBundle
from tidemill.protocol.types import TensorSpec

__all__ = ["data_files", "open_foreign", "signature"]

_MODEL_FILE = "model.onnx"


def open_foreign(directory: str | PathLike[str]) -> StoredBundle:
    """Open a folder that has a model.onnx and no bundle.json, such as a version of a Triton repository.

    Every file is read once for its digest.

    Args:
        directory: The folder.

    Returns:
        A bundle with one graph, "main".

    Raises:
        InvalidBundle: The file is missing or no ONNX model, its data lies outside the folder or a file, or an
            input or output is no tensor of known rank and element type.
    """
    folder = Path(directory)
    try:
        check_inside(folder, _MODEL_FILE)
        model = read_graph(folder / _MODEL_FILE)
        return StoredBundle(folder, _manifest(folder, model, [_MODEL_FILE, *data_files(folder / _MODEL_FILE)]))
    except InvalidBundle as error:
        raise InvalidBundle(f"{folder}: {error}") from None


def signature(model: onnx.ModelProto) -> tuple[tuple[TensorSpec, ...], tuple[TensorSpec, ...]]:
    """The inputs and outputs of a model; InvalidBundle if one is no tensor of known rank and element type."""
    weights = {tensor.name for tensor in model.graph.initializer}
    inputs = tuple(_spec("input", value) for value in model.graph.input if value.name not in weights)
    return inputs, tuple(_spec("output", value) for value in model.graph.output)


def data_files(path: Path) -> list[str]:
    """The files beside an ONNX file that hold its data; InvalidBundle if a tensor's place is not in one of them."""
    places = list(external_data(path))
    sizes = {place.location: check_inside(path.parent, place.location) for place in places}
    for place in places:
        place.check_within(sizes[place.location])
    return sorted(sizes)


def _manifest(folder: Path, model: onnx.ModelProto, files: list[str]) -> BundleManifest:
    inputs, outputs = signature(model)
    return BundleManifest(
        name=model.graph.name or folder.name,
        graphs={MAIN_GRAPH: GraphEntry(_MODEL_FILE, inputs, outputs)},
        files={name: file_entry(folder / name) for name in files},
        opset=max((entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")), default=0),
        created_with={"producer": f"{model.producer_name} {model.producer_version}".strip() or "unknown"},
    )


def _spec(kind: str, value: onnx.ValueInfoProto) -> TensorSpec:
    tensor = value.type.tensor_type
    if value.type.WhichOneof("value") != "tensor_type" or not tensor.HasField("shape"):
        raise InvalidBundle(f"{kind} {value.name!r} must be a tensor of known rank")
    try:
        dtype = DType.from_onnx(tensor.elem_type)
    except ValueError as error:
        raise InvalidBundle(f"{kind} {value.name!r}: {error}") from None
    return TensorSpec(value.name, dtype, tuple(_dim(dim) for dim in tensor.shape.dim))


def _dim(dim: onnx.TensorShapeProto.Dimension) -> int | str:
    # Some exporters write a free size as -1.
    return dim.dim_value if dim.HasField("dim_value") and dim.dim_value >= 0 else dim.dim_param
