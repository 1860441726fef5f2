"""A folder with a plain model.onnx, read as if it were a bundle; its signature comes from the ONNX file."""

from __future__ import annotations

from collections.abc import Iterator
from os import PathLike
from pathlib import Path, PurePosixPath

import onnx

from tidemill.bundle.manifest import MAIN_GRAPH, BundleManifest, GraphEntry
from tidemill.bundle.stored import StoredBundle, check_inside, file_entry
from tidemill.dtype import DType
from tidemill.errors import InvalidBundle
from tidemill.protocol.types import TensorSpec

__all__ = ["open_foreign"]

_MODEL_FILE = "model.onnx"


def open_foreign(directory: str | PathLike[str]) -> StoredBundle:
    """Open a folder that has a model.onnx and no bundle.json, such as a version of a Triton repository.

    Every file is read once for its digest.

    Args:
        directory: The folder.

    Returns:
        A bundle with one graph, "main".

    Raises:
        InvalidBundle: The file is missing or no ONNX model, its data lies outside the folder, or an input or output
            is no tensor of known rank and element type.
    """
    folder = Path(directory)
    try:
        model = _load(folder)
        files = [_MODEL_FILE, *sorted(set(_external_files(model)))]
        for name in files:
            check_inside(folder, name)
        return StoredBundle(folder, _manifest(folder, model, files))
    except InvalidBundle as error:
        raise InvalidBundle(f"{folder}: {error}") from None


def _load(folder: Path) -> onnx.ModelProto:
    check_inside(folder, _MODEL_FILE)
    try:
        return onnx.load(folder / _MODEL_FILE, load_external_data=False)
    except Exception as error:  # protobuf's DecodeError has no base but this, and protobuf is not imported here
        raise InvalidBundle(f"{_MODEL_FILE} is no ONNX model: {error}") from None


def _external_files(model: onnx.ModelProto) -> Iterator[str]:
    for tensor in model.graph.initializer:
        yield from (str(PurePosixPath(entry.value)) for entry in tensor.external_data if entry.key == "location")


def _manifest(folder: Path, model: onnx.ModelProto, files: list[str]) -> BundleManifest:
    weights = {tensor.name for tensor in model.graph.initializer}
    inputs = tuple(_spec("input", value) for value in model.graph.input if value.name not in weights)
    outputs = tuple(_spec("output", value) for value in model.graph.output)
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
