"""Requests as bytes, encoded and judged by tritonclient, so that tidemill does not judge itself."""

from __future__ import annotations

import http.client
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import tritonclient.grpc
from models import Feed
from processes import HOST
from tritonclient.grpc import service_pb2
from tritonclient.http import InferenceServerClient, InferInput, InferRequestedOutput
from tritonclient.utils import np_to_triton_dtype

__all__ = ["WIRES", "Encode", "Encoded", "check", "json_at", "raw"]


@dataclass(frozen=True)
class Encoded:
    """One request, ready to send.

    Attributes:
        path: Where to.
        headers: With it.
        body: What is sent.
        answer: How the answer is read: as the protocol's "rest", as "grpc" (over HTTP/2, with prior knowledge), or as
            "raw": the bytes of the first output.
    """

    path: str
    headers: Mapping[str, str]
    body: bytes
    answer: str = "rest"

    @property
    def http2(self) -> bool:
        """Whether it goes over HTTP/2."""
        return self.answer == "grpc"


def _rest(model: str, feed: Feed, outputs: list[str], *, binary: bool) -> Encoded:
    inputs = []
    for name, array in feed.items():
        inputs.append(InferInput(name, list(array.shape), np_to_triton_dtype(array.dtype)))
        inputs[-1].set_data_from_numpy(array, binary_data=binary)
    wanted = [InferRequestedOutput(name, binary_data=binary) for name in outputs]
    body, header_length = InferenceServerClient.generate_request_body(inputs, outputs=wanted)
    headers = {"content-type": "application/json"}
    if header_length is not None:
        headers = {"content-type": "application/octet-stream", "inference-header-content-length": str(header_length)}
    return Encoded(f"/v2/models/{model}/infer", headers, bytes(body))


def _binary(model: str, feed: Feed, outputs: list[str]) -> Encoded:
    return _rest(model, feed, outputs, binary=True)


def _json(model: str, feed: Feed, outputs: list[str]) -> Encoded:
    return _rest(model, feed, outputs, binary=False)


def _grpc(model: str, feed: Feed, outputs: list[str]) -> Encoded:
    message = service_pb2.ModelInferRequest(model_name=model)
    for name, array in feed.items():
        message.inputs.add(name=name, datatype=np_to_triton_dtype(array.dtype), shape=array.shape)
        message.raw_input_contents.append(array.tobytes())
    for name in outputs:
        message.outputs.add(name=name)
    # gRPC over HTTP/2: each message after a byte for compression and its length.
    body = message.SerializeToString()
    headers = {"content-type": "application/grpc", "te": "trailers"}
    frame = struct.pack(">BI", 0, len(body)) + body
    return Encoded("/inference.GRPCInferenceService/ModelInfer", headers, frame, "grpc")


Encode = Callable[[str, Feed, list[str]], Encoded]
"""Writes a request: the model's name, its inputs, and the outputs that are wanted."""

WIRES: dict[str, Encode] = {"binary": _binary, "json": _json, "grpc": _grpc}
"""The protocol's own."""


def raw(path: str) -> Encode:
    """A wire outside the protocol: the inputs' bytes one after the other, answered by the first output's."""

    def encode(model: str, feed: Feed, _outputs: list[str]) -> Encoded:
        body = b"".join(array.tobytes() for array in feed.values())
        return Encoded(path.format(model=model), {"content-type": "application/octet-stream"}, body, "raw")

    return encode


def json_at(path: str) -> Encode:
    """The protocol's JSON at another path."""

    def encode(model: str, feed: Feed, outputs: list[str]) -> Encoded:
        request = _json(model, feed, outputs)
        return Encoded(path.format(model=model), request.headers, request.body)

    return encode


def check(port: int, request: Encoded, model: str, feed: Feed, expected: Mapping[str, Any]) -> None:
    """Refuse to measure a server whose answer differs from the runtime's."""
    if request.answer == "raw":
        (name, first), *_ = expected.items()
        answer = {name: np.frombuffer(_post(port, request)[1], first.dtype).reshape(first.shape)}
    else:
        result = _ask_grpc(port, model, feed, list(expected)) if request.http2 else _ask_rest(port, request)
        answer = {name: result.as_numpy(name) for name in expected}
    for name, array in answer.items():
        np.testing.assert_allclose(array, expected[name], rtol=1e-3, atol=1e-4, err_msg=f"{model}: {name}")


def _ask_rest(port: int, request: Encoded) -> Any:
    length, body = _post(port, request)
    return InferenceServerClient.parse_response_body(body, header_length=int(length) if length else None)


def _post(port: int, request: Encoded) -> tuple[str | None, bytes]:
    connection = http.client.HTTPConnection(HOST, port, timeout=60)
    try:
        connection.request("POST", request.path, request.body, dict(request.headers))
        answer = connection.getresponse()
        body = answer.read()
    finally:
        connection.close()
    if answer.status != 200:
        raise RuntimeError(f"{request.path} on port {port} answered {answer.status}: {body[:500]!r}")
    return answer.getheader("inference-header-content-length"), body


def _ask_grpc(port: int, model: str, feed: Feed, outputs: list[str]) -> Any:
    inputs = []
    for name, array in feed.items():
        inputs.append(tritonclient.grpc.InferInput(name, list(array.shape), np_to_triton_dtype(array.dtype)))
        inputs[-1].set_data_from_numpy(array)
    wanted = [tritonclient.grpc.InferRequestedOutput(name) for name in outputs]
    client = tritonclient.grpc.InferenceServerClient(f"{HOST}:{port}")
    try:
        return client.infer(model, inputs, outputs=wanted)
    finally:
        client.close()
