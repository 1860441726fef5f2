"""Inference over REST: the JSON header and the binary tensors after it; knows no HTTP server or client.

A body is JSON, optionally followed by raw tensors whose sizes the JSON names (`binary_data_size`). The length of the
JSON then travels in the header `Inference-Header-Content-Length`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
import orjson

from tidemill.dtype import DType
from tidemill.errors import InferenceFailed, InvalidArgument
from tidemill.protocol.json_data import from_json, to_json
from tidemill.protocol.parameters import check_parameters
from tidemill.protocol.requested import ReadRegion, no_regions, region_parameters, region_slice, requested_output
from tidemill.protocol.tensors import from_bytes, to_bytes
from tidemill.protocol.types import Array, InferRequest, InferResponse, RegionSlice, RequestedOutput

__all__ = [
    "HEADER_LENGTH",
    "format_infer_request",
    "format_infer_response",
    "parse_header_length",
    "parse_infer",
    "parse_infer_response",
]

HEADER_LENGTH = "Inference-Header-Content-Length"

Buffer: TypeAlias = bytes | memoryview
Body: TypeAlias = bytes | bytearray | memoryview

_ALIGNMENT = 8


class _Blobs:
    """The bytes that do not lie in the JSON: those after it, handed out in order, and those in shared memory."""

    def __init__(self, data: memoryview, read_region: ReadRegion) -> None:
        self._data = data
        self.read_region = read_region

    def take(self, size: object, name: str) -> memoryview:
        if type(size) is not int or size < 0:
            raise InvalidArgument(f"{name}: binary_data_size is {size!r}, expected a whole number not below 0")
        if size > len(self._data):
            raise InvalidArgument(
                f"{name}: expecting {size - len(self._data)} additional bytes of binary data after the JSON "
                f"(binary_data_size is {size}; is {HEADER_LENGTH} set?)"
            )
        taken, self._data = self._data[:size], self._data[size:]
        return taken

    def finish(self) -> None:
        if self._data:
            raise InvalidArgument(f"unexpected additional input data: {len(self._data)} bytes belong to no tensor")


def parse_header_length(text: str | None) -> int | None:
    """Read the header `Inference-Header-Content-Length`; None where it is absent.

    Raises:
        InvalidArgument: It is not a whole number from 0 on.
    """
    if text is None:
        return None
    if not (text.isascii() and text.isdigit()):
        raise InvalidArgument(f"{HEADER_LENGTH} is {text!r}, expected the length of the JSON part in bytes")
    # Longer than any body; int() of an endless run of digits would be slow.
    return int(text) if len(text) < 20 else 2**63


def parse_infer(
    body: Body,
    header_length: int | None,
    *,
    model_name: str = "",
    model_version: str = "",
    read_region: ReadRegion = no_regions,
) -> InferRequest:
    """Read an inference request.

    Args:
        body: The whole body, decompressed. Binary inputs become views of it.
        header_length: Bytes of its JSON part; None if it is all JSON. 0 means a raw request: see `protocol.raw`.
        model_name: The model in the path.
        model_version: The version in the path, "" for none.
        read_region: Reads inputs that lie in shared memory.

    Raises:
        InvalidArgument: The body contradicts the protocol; the message names the tensor or field.
        TidemillError: What `read_region` raises.
    """
    header, blobs = _open(body, header_length, read_region)
    inputs = _tensors(header, "input", blobs)
    parameters = check_parameters(_parameters(header, "the request"))
    return InferRequest(
        model_name=model_name,
        model_version=model_version,
        id=_string(header, "id"),
        inputs=inputs,
        outputs=_requested(header, binary=bool(parameters.get("binary_data_output", False))),
        parameters=parameters,
    )


def format_infer_response(response: InferResponse, request: InferRequest) -> tuple[int | None, list[Buffer]]:
    """Write the answer to `request`, each output in the form that it asked for.

    Returns:
        The length of the JSON part, None if no binary data follows it, and the body's parts in order.

    Raises:
        InvalidArgument: An output was asked for as JSON and holds bytes that are not UTF-8.
    """
    binary = {output.name: output.binary for output in request.outputs}
    default = bool(request.parameters.get("binary_data_output", False))
    blobs: list[Buffer] = []
    document: dict[str, Any] = {"model_name": response.model_name, "model_version": response.model_version}
    if response.id:
        document = {"id": response.id, **document}
    if response.parameters:
        document["parameters"] = dict(response.parameters)
    document["outputs"] = [
        _describe_placed(name, array, response.regions[name])
        if name in response.regions
        else _describe(name, array, f"output {name!r}", blobs if binary.get(name, default) else None)
        for name, array in response.outputs.items()
    ]
    return _close(document, blobs)


def format_infer_request(request: InferRequest, binary: bool = True) -> tuple[int | None, list[Buffer]]:
    """Write a request as a client sends it.

    Args:
        request: What to ask; outputs that it lists keep their own `binary`.
        binary: Whether inputs, and outputs if none are listed, travel as binary data instead of JSON.

    Returns:
        As `format_infer_response`.

    Raises:
        InvalidArgument: An input has no exact JSON form (infinities, bytes that are not UTF-8) and `binary` is off.
    """
    blobs: list[Buffer] = []
    document: dict[str, Any] = {"id": request.id} if request.id else {}
    parameters = dict(request.parameters)
    if request.outputs:
        document["outputs"] = [
            {"name": output.name, "parameters": {"binary_data": output.binary}} for output in request.outputs
        ]
    elif binary:
        parameters["binary_data_output"] = True
    if parameters:
        document["parameters"] = parameters
    if not binary:
        _refuse_infinities(request.inputs)
    document["inputs"] = [
        _describe(name, array, f"input {name!r}", blobs if binary else None) for name, array in request.inputs.items()
    ]
    return _close(document, blobs)


def parse_infer_response(body: Body, header_length: int | None) -> InferResponse:
    """Read a server's answer.

    Raises:
        InferenceFailed: The answer contradicts the protocol.
    """
    try:
        header, blobs = _open(body, header_length)
        outputs = _tensors(header, "output", blobs)
        return InferResponse(
            model_name=_string(header, "model_name"),
            model_version=_string(header, "model_version"),
            id=_string(header, "id"),
            outputs=outputs,
            parameters=_parameters(header, "the response"),
        )
    except InvalidArgument as error:
        raise InferenceFailed(f"the server's answer does not follow the protocol: {error}") from error


def _open(body: Body, header_length: int | None, read_region: ReadRegion = no_regions) -> tuple[dict[str, Any], _Blobs]:
    view = memoryview(body)
    length = len(view) if header_length is None else header_length
    if not 0 <= length <= len(view):
        raise InvalidArgument(f"{HEADER_LENGTH} is {length}, the body has {len(view)} bytes")
    try:
        header = orjson.loads(view[:length])
    except orjson.JSONDecodeError as error:
        raise InvalidArgument(_json_fault(error, header_length)) from None
    if not isinstance(header, dict):
        raise InvalidArgument("the body's JSON is not an object")
    return header, _Blobs(view[length:], read_region)


def _json_fault(error: orjson.JSONDecodeError, header_length: int | None) -> str:
    hint = "NaN and infinities are not JSON: write null for NaN, or send binary data"
    if header_length is None:
        hint += f"; binary data after the JSON needs the header {HEADER_LENGTH}"
    return f"the body is not JSON: {error} ({hint})"


def _tensors(header: Mapping[str, Any], kind: str, blobs: _Blobs) -> dict[str, Array]:
    tensors: dict[str, Array] = {}
    for item in _objects(header, f"{kind}s"):
        name = _name(item, kind)
        if name in tensors:
            raise InvalidArgument(f"{kind} {name!r} is given twice")
        tensors[name] = _tensor(item, f"{kind} {name!r}", blobs)
    blobs.finish()
    return tensors


def _tensor(item: Mapping[str, Any], name: str, blobs: _Blobs) -> Array:
    try:
        dtype = DType.from_wire(item.get("datatype", ""))
    except ValueError as error:
        raise InvalidArgument(f"{name}: {error}") from None
    shape = item.get("shape")
    if not isinstance(shape, list) or any(type(dim) is not int for dim in shape):
        raise InvalidArgument(f"{name}: shape is {shape!r}, expected a list of whole numbers")
    parameters = _parameters(item, name)
    _check_source(item, parameters, name)
    if "data" in item:
        return from_json(item["data"], dtype, shape, name=name)
    if region := region_slice(parameters, name):
        return from_bytes(blobs.read_region(region), dtype, shape, name=name)
    return from_bytes(blobs.take(parameters["binary_data_size"], name), dtype, shape, name=name)


def _check_source(item: Mapping[str, Any], parameters: Mapping[str, Any], name: str) -> None:
    given = [key for key in ("binary_data_size", "shared_memory_region") if key in parameters]
    given += ["data"] if "data" in item else []
    if len(given) != 1:
        raise InvalidArgument(
            f"{name} has {' and '.join(given) or 'no data'}; "
            "give exactly one of data, binary_data_size and shared_memory_region"
        )


def _requested(header: Mapping[str, Any], binary: bool) -> tuple[RequestedOutput, ...]:
    outputs: dict[str, RequestedOutput] = {}
    for item in _objects(header, "outputs") if header.get("outputs") is not None else ():
        name = _name(item, "output")
        if name in outputs:
            raise InvalidArgument(f"output {name!r} is asked for twice")
        outputs[name] = requested_output(name, _parameters(item, f"output {name!r}"), binary=binary)
    return tuple(outputs.values())


def _describe(name: str, array: Array, label: str, blobs: list[Buffer] | None) -> dict[str, Any]:
    dtype = DType.from_numpy(array.dtype)
    described: dict[str, Any] = {"name": name, "datatype": dtype.wire, "shape": list(array.shape)}
    if blobs is None:
        return {**described, "data": to_json(array, name=label)}
    blobs.append(to_bytes(array, dtype, name=label))
    return {**described, "parameters": {"binary_data_size": len(blobs[-1])}}


def _describe_placed(name: str, array: Array, place: RegionSlice) -> dict[str, Any]:
    dtype = DType.from_numpy(array.dtype)
    return {
        "name": name,
        "datatype": dtype.wire,
        "shape": list(array.shape),
        "parameters": region_parameters(place),
    }


def _close(document: Mapping[str, Any], blobs: list[Buffer]) -> tuple[int | None, list[Buffer]]:
    header = orjson.dumps(document)
    if not any(blobs):
        return None, [header]
    # Blanks up to the alignment of the widest element let the reader view the first tensor instead of copying it.
    header += b" " * (-len(header) % _ALIGNMENT)
    return len(header), [header, *blobs]


def _refuse_infinities(inputs: Mapping[str, Array]) -> None:
    for name, array in inputs.items():
        if DType.from_numpy(array.dtype).is_float() and np.isinf(array).any():
            raise InvalidArgument(f"input {name!r} holds an infinity, which JSON cannot carry; send it as binary data")


def _objects(header: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
    items = header.get(key)
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise InvalidArgument(f"{key!r} is missing or not a list of objects")
    return items


def _name(item: Mapping[str, Any], kind: str) -> str:
    name = item.get("name")
    if not isinstance(name, str) or not name:
        raise InvalidArgument(f"an {kind} has the name {name!r}, expected a string")
    return name


def _string(header: Mapping[str, Any], key: str) -> str:
    text = header.get(key)
    if text is None:
        return ""
    if not isinstance(text, str):
        raise InvalidArgument(f"unable to parse {key!r}: {text!r} is not a string")
    return text


def _parameters(item: Mapping[str, Any], owner: str) -> dict[str, Any]:
    parameters = item.get("parameters")
    if parameters is None:
        return {}
    if not isinstance(parameters, dict):
        raise InvalidArgument(f"the parameters of {owner} are not an object")
    return parameters
