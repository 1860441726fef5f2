"""Inference over gRPC: the method table, and requests and responses as protobuf messages; knows no gRPC server.

Tensors travel as raw bytes. Typed `contents` are read as well, since some clients send nothing else; they are never
written. 16- and 8-bit floats have no typed form.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from google.protobuf.json_format import ParseDict

from tidemill.dtype import DType
from tidemill.errors import InferenceFailed, InvalidArgument
from tidemill.protocol import messages
from tidemill.protocol.index import ModelIndex
from tidemill.protocol.integers import from_integers
from tidemill.protocol.metadata import (
    format_index,
    format_model_metadata,
    format_server_metadata,
    parse_model_metadata,
)
from tidemill.protocol.parameters import check_parameters
from tidemill.protocol.requested import ReadRegion, no_regions, region_parameters, region_slice, requested_output
from tidemill.protocol.tensors import element_count, from_bytes, to_bytes
from tidemill.protocol.types import (
    Array,
    InferRequest,
    InferResponse,
    ModelMetadata,
    Parameter,
    RequestedOutput,
    ServerMetadata,
)

__all__ = [
    "METHODS",
    "SERVICE",
    "Method",
    "document_to_message",
    "index_from_message",
    "index_to_message",
    "metadata_from_message",
    "metadata_to_message",
    "method_path",
    "request_from_message",
    "request_to_message",
    "response_from_message",
    "response_to_message",
    "server_metadata_from_message",
    "server_metadata_to_message",
]

SERVICE = f"{messages.PACKAGE}.GRPCInferenceService"


class Method(NamedTuple):
    """One RPC of the service; `streaming` means a stream in both directions."""

    name: str
    request: Any
    response: Any
    streaming: bool


METHODS: tuple[Method, ...] = tuple(
    Method(
        method.name,
        messages.message_class(method.input_type.name),
        messages.message_class(method.output_type.name),
        method.server_streaming,
    )
    for method in messages.POOL.FindServiceByName(SERVICE).methods
)

_Request = messages.message_class("ModelInferRequest")
_Response = messages.message_class("ModelInferResponse")
_INT64_MAX = 2**63 - 1

_TYPED_FIELDS: dict[DType, str] = {
    DType.bool: "bool_contents",
    DType.int8: "int_contents",
    DType.int16: "int_contents",
    DType.int32: "int_contents",
    DType.int64: "int64_contents",
    DType.uint8: "uint_contents",
    DType.uint16: "uint_contents",
    DType.uint32: "uint_contents",
    DType.uint64: "uint64_contents",
    DType.float32: "fp32_contents",
    DType.float64: "fp64_contents",
    DType.string: "bytes_contents",
}


def method_path(name: str) -> str:
    """The path of a method on the wire, such as "/inference.GRPCInferenceService/ModelInfer"."""
    return f"/{SERVICE}/{name}"


def document_to_message(name: str, document: Mapping[str, Any]) -> Any:
    """Write the message `name` from the JSON form of its fields (snake case, enums by name)."""
    return ParseDict(document, messages.message_class(name)())


def request_from_message(message: Any, read_region: ReadRegion = no_regions) -> InferRequest:
    """Read a `ModelInferRequest`. Inputs become views of its raw bytes.

    Args:
        message: The message.
        read_region: Reads inputs that lie in shared memory.

    Raises:
        InvalidArgument: The message contradicts the protocol; the text names the tensor or parameter.
        TidemillError: What `read_region` raises.
    """
    return InferRequest(
        model_name=message.model_name,
        model_version=message.model_version,
        id=message.id,
        inputs=_tensors("input", message.inputs, message.raw_input_contents, read_region),
        outputs=_requested(message.outputs),
        parameters=check_parameters(_read_parameters(message.parameters)),
    )


def request_to_message(request: InferRequest) -> Any:
    """Write a `ModelInferRequest` with raw contents."""
    message = _Request(model_name=request.model_name, model_version=request.model_version, id=request.id)
    for output in request.outputs:
        message.outputs.add(name=output.name)
    _write_parameters(message.parameters, request.parameters)
    _write_tensors("input", request.inputs, message.inputs, message.raw_input_contents)
    return message


def response_to_message(response: InferResponse) -> Any:
    """Write a `ModelInferResponse` with one raw entry per output, in order; empty for those in shared memory."""
    message = _Response(model_name=response.model_name, model_version=response.model_version, id=response.id)
    _write_parameters(message.parameters, response.parameters)
    for name, array in response.outputs.items():
        place = response.regions.get(name)
        output = _write_tensor("output", name, array, message.outputs, None if place else message.raw_output_contents)
        if place:
            _write_parameters(output.parameters, region_parameters(place))
            message.raw_output_contents.append(b"")
    return message


def response_from_message(message: Any) -> InferResponse:
    """Read a `ModelInferResponse`, raw or typed.

    Raises:
        InferenceFailed: The answer contradicts the protocol.
    """
    try:
        outputs = _tensors("output", message.outputs, message.raw_output_contents)
        parameters = _read_parameters(message.parameters)
    except InvalidArgument as error:
        raise InferenceFailed(f"the server's answer does not follow the protocol: {error}") from error
    return InferResponse(
        model_name=message.model_name,
        model_version=message.model_version,
        id=message.id,
        outputs=outputs,
        parameters=parameters,
    )


def server_metadata_to_message(metadata: ServerMetadata) -> Any:
    """Write a `ServerMetadataResponse`."""
    return messages.ServerMetadataResponse(**format_server_metadata(metadata))


def server_metadata_from_message(message: Any) -> ServerMetadata:
    """Read a `ServerMetadataResponse`."""
    return ServerMetadata(message.name, message.version, tuple(message.extensions))


def metadata_to_message(metadata: ModelMetadata) -> Any:
    """Write a `ModelMetadataResponse`; free dims are -1."""
    return messages.ModelMetadataResponse(**format_model_metadata(metadata))


def metadata_from_message(message: Any) -> ModelMetadata:
    """Read a `ModelMetadataResponse`; InferenceFailed if it names an unknown datatype."""
    fields = {key: getattr(message, key) for key in ("name", "versions", "platform")}
    tensors = {
        key: [{"name": item.name, "datatype": item.datatype, "shape": item.shape} for item in getattr(message, key)]
        for key in ("inputs", "outputs")
    }
    return parse_model_metadata({**fields, **tensors})


def index_to_message(entries: Iterable[ModelIndex]) -> Any:
    """Write a `RepositoryIndexResponse`."""
    return messages.RepositoryIndexResponse(models=format_index(entries))


def index_from_message(message: Any) -> tuple[ModelIndex, ...]:
    """Read a `RepositoryIndexResponse`."""
    return tuple(ModelIndex(item.name, item.version, item.state, item.reason) for item in message.models)


def _tensors(
    kind: str, items: Sequence[Any], raw: Sequence[bytes], read_region: ReadRegion = no_regions
) -> dict[str, Array]:
    tensors: dict[str, Array] = {}
    entries = iter(raw)
    for item in items:
        label = f"{kind} {item.name!r}"
        if not item.name:
            raise InvalidArgument(f"an {kind} has no name")
        if item.name in tensors:
            raise InvalidArgument(f"{label} is given twice")
        parameters = _read_parameters(item.parameters)
        if kind == "input" and (region := region_slice(parameters, label)):
            tensors[item.name] = _from_region(item, read_region(region), label)
        else:
            tensors[item.name] = _tensor(item, entries if raw else None, label)
    left = sum(1 for _ in entries)
    if left:
        raise InvalidArgument(f"{len(raw)} raw entries for {len(items)} {kind}s: {left} belong to no tensor")
    return tensors


def _from_region(item: Any, data: bytes | bytearray | memoryview, label: str) -> Array:
    if item.contents.ListFields():
        raise InvalidArgument(f"{label} has typed contents and lies in shared memory; give one of them")
    return from_bytes(data, _dtype(item, label), list(item.shape), name=label)


def _dtype(item: Any, label: str) -> DType:
    try:
        return DType.from_wire(item.datatype)
    except ValueError as error:
        raise InvalidArgument(f"{label}: {error}") from None


def _tensor(item: Any, entries: Iterator[bytes] | None, label: str) -> Array:
    dtype = _dtype(item, label)
    shape = list(item.shape)
    if entries is None:
        return _from_contents(item.contents, dtype, shape, label)
    if item.contents.ListFields():
        raise InvalidArgument(f"{label} has typed contents in a message with raw contents; use one form for all")
    entry = next(entries, None)
    if entry is None:
        raise InvalidArgument(f"{label} has no data: the raw contents hold no entry for it")
    return from_bytes(entry, dtype, shape, name=label)


def _from_contents(contents: Any, dtype: DType, shape: list[int], label: str) -> Array:
    count = element_count(shape, name=label)
    filled = {field.name: values for field, values in contents.ListFields()}
    expected = _TYPED_FIELDS.get(dtype)
    if expected is None:
        raise InvalidArgument(f"{label}: {dtype.wire} has no typed contents; send it as raw contents")
    if filled.keys() - {expected}:
        raise InvalidArgument(f"{label} fills {' and '.join(filled)}, but {dtype.wire} belongs in {expected}")
    values = filled.get(expected, ())
    if len(values) != count:
        raise InvalidArgument(f"{label} has {len(values)} values, expected {count} for shape {shape}")
    return _typed_array(values, dtype, label).reshape(shape)


def _typed_array(values: Sequence[Any], dtype: DType, label: str) -> Array:
    if dtype.is_integral():
        return from_integers(values, dtype, name=label)
    array = np.empty(len(values), dtype=dtype.to_numpy())
    array[:] = values
    return array


def _requested(items: Sequence[Any]) -> tuple[RequestedOutput, ...]:
    outputs: dict[str, RequestedOutput] = {}
    for item in items:
        if item.name in outputs:
            raise InvalidArgument(f"output {item.name!r} is asked for twice")
        outputs[item.name] = requested_output(item.name, _read_parameters(item.parameters), binary=True)
    return tuple(outputs.values())


def _write_tensors(kind: str, tensors: Mapping[str, Array], items: Any, raw: Any) -> None:
    for name, array in tensors.items():
        _write_tensor(kind, name, array, items, raw)


def _write_tensor(kind: str, name: str, array: Array, items: Any, raw: Any) -> Any:
    """Describe a tensor in `items` and, where `raw` is given, append its bytes."""
    dtype = DType.from_numpy(array.dtype)
    if raw is not None:
        raw.append(bytes(to_bytes(array, dtype, name=f"{kind} {name!r}")))
    return items.add(name=name, datatype=dtype.wire, shape=array.shape)


def _read_parameters(given: Any) -> dict[str, Parameter]:
    parameters: dict[str, Parameter] = {}
    for name, choice in given.items():
        field = choice.WhichOneof("parameter_choice")
        if field is None:
            raise InvalidArgument(f"parameter {name!r} has no value")
        parameters[name] = getattr(choice, field)
    return parameters


def _write_parameters(target: Any, parameters: Mapping[str, Parameter]) -> None:
    for name, value in parameters.items():
        setattr(target[name], _parameter_field(value), value)


def _parameter_field(value: Parameter) -> str:
    if isinstance(value, bool):
        return "bool_param"
    if isinstance(value, int):
        return "uint64_param" if value > _INT64_MAX else "int64_param"
    return "double_param" if isinstance(value, float) else "string_param"
