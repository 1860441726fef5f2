"""The questions of the protocol as gRPC messages, written and read as bytes; knows no channel.

Tensors are set beside the message that protobuf writes, not inside it: a message may be written in pieces, and so no
tensor is copied into protobuf's memory and out of it again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tidemill.client.call import Call, Part
from tidemill.dtype import DType
from tidemill.errors import InferenceFailed
from tidemill.protocol import messages, rpc
from tidemill.protocol.index import ModelIndex
from tidemill.protocol.tensors import from_bytes, to_bytes
from tidemill.protocol.types import Array, InferRequest, ModelMetadata, ServerMetadata

__all__ = ["GrpcWire"]

_Request = messages.message_class("ModelInferRequest")
_Response = messages.message_class("ModelInferResponse")
_Metadata = messages.message_class("ModelMetadataRequest")
_Ready = messages.message_class("ModelReadyRequest")
_ResponseOf = {method.name: method.response for method in rpc.METHODS}
# The tags of raw_input_contents = 7 and raw_output_contents = 6, both of bytes (wire type 2).
_RAW_INPUT = b"\x3a"
_RAW_OUTPUT = 0x32
_SMALL_BYTES = 1 << 16


class GrpcWire:
    """The questions of the protocol as gRPC messages."""

    def infer(self, request: InferRequest) -> Call[dict[str, Array]]:
        """`ModelInfer`, all tensors raw."""
        blobs: list[Part] = []
        head = InferRequest(
            request.model_name, {}, request.model_version, request.id, request.outputs, request.parameters
        )
        message = rpc.request_to_message(head)
        for name, array in request.inputs.items():
            dtype = DType.from_numpy(array.dtype)
            blobs.append(to_bytes(array, dtype, name=f"input {name!r}"))
            message.inputs.add(name=name, datatype=dtype.wire, shape=array.shape)
        parts: list[Part] = [message.SerializeToString()]
        for blob in blobs:
            parts += (_RAW_INPUT + _varint(len(blob)), blob)
        return Call("ModelInfer", _read_infer, parts, repeatable=False)

    def metadata(self, model: str, version: str = "") -> Call[ModelMetadata]:
        """`ModelMetadata`."""
        return _call("ModelMetadata", _Metadata(name=model, version=version), rpc.metadata_from_message)

    def server_metadata(self) -> Call[ServerMetadata]:
        """`ServerMetadata`."""
        message = messages.ServerMetadataRequest()
        return _call("ServerMetadata", message, rpc.server_metadata_from_message)

    def ready(self, model: str = "", version: str = "") -> Call[bool]:
        """`ModelReady`, or `ServerReady` without a model."""
        if model:
            return _call("ModelReady", _Ready(name=model, version=version), lambda answer: bool(answer.ready))
        return _call("ServerReady", messages.ServerReadyRequest(), lambda answer: bool(answer.ready))

    def index(self) -> Call[tuple[ModelIndex, ...]]:
        """`RepositoryIndex`."""
        return _call("RepositoryIndex", messages.RepositoryIndexRequest(), rpc.index_from_message)


def _call(name: str, message: Any, read: Callable[[Any], Any]) -> Call[Any]:
    kind = _ResponseOf[name]
    return Call(name, lambda answer: read(_message(kind, answer)), [message.SerializeToString()])


def _read_infer(answer: bytes) -> dict[str, Array]:
    raw, message = _parsed(answer)
    if not raw:
        return dict(rpc.response_from_message(message).outputs)
    if len(raw) != len(message.outputs):
        raise InferenceFailed(f"the server's answer has {len(raw)} raw entries for {len(message.outputs)} outputs")
    try:
        return {
            item.name: from_bytes(data, DType.from_wire(item.datatype), list(item.shape), name=f"output {item.name!r}")
            for item, data in zip(message.outputs, raw, strict=True)
        }
    except ValueError as error:
        raise InferenceFailed(f"the server's answer does not follow the protocol: {error}") from error


def _message(kind: Any, answer: bytes) -> Any:
    try:
        return kind.FromString(answer)
    except messages.DecodeError as error:
        raise InferenceFailed(f"the server's answer is no message of protobuf: {error}") from error


def _parsed(answer: bytes) -> tuple[Sequence[Part], Any]:
    if len(answer) < _SMALL_BYTES:
        # To copy so little costs less than to find out where it lies.
        message = _message(_Response, answer)
        return message.raw_output_contents, message
    raw, rest = _without_raw(memoryview(answer))
    return raw, _message(_Response, rest)


def _without_raw(answer: memoryview) -> tuple[list[memoryview], bytes]:
    """The raw tensors as views of the answer, and the rest of it."""
    raw: list[memoryview] = []
    rest: list[memoryview] = []
    for start, content, end in _fields(answer):
        if answer[start] == _RAW_OUTPUT:
            raw.append(answer[content:end])
        else:
            rest.append(answer[start:end])
    return raw, b"".join(rest)


def _fields(answer: memoryview) -> Iterator[tuple[int, int, int]]:
    """Where each field of a message starts, where its content starts, and where it ends."""
    place = 0
    while place < len(answer):
        start = place
        tag, place = _read_varint(answer, place)
        kind = tag & 7
        length = {1: 8, 5: 4}.get(kind, 0)
        if kind in (0, 2):
            value, place = _read_varint(answer, place)
            length = value if kind == 2 else 0
        if kind not in (0, 1, 2, 5) or place + length > len(answer):
            raise InferenceFailed("the server's answer is no message of protobuf")
        yield start, place, place + length
        place += length


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 127:
        encoded.append(value & 127 | 128)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def _read_varint(answer: memoryview, place: int) -> tuple[int, int]:
    value = shift = 0
    while shift < 64 and place < len(answer):
        byte = answer[place]
        value |= (byte & 127) << shift
        place += 1
        if byte < 128:
            return value, place
        shift += 7
    raise InferenceFailed("the server's answer ends inside a number of protobuf")
