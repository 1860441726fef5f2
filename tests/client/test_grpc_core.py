"""Answers over gRPC as bytes: small and large ones, and those that are none; without a channel."""

from __future__ import annotations

import numpy as np
import pytest

from tidemill import errors
from tidemill.client.feed import build_request
from tidemill.client.grpc_core import GrpcWire
from tidemill.protocol import messages, rpc
from tidemill.protocol.types import InferResponse

READ = GrpcWire().infer(build_request("m", {})).read
Request = messages.message_class("ModelInferRequest")


@pytest.mark.parametrize("count", [0, 1, 100, 16_000, 1 << 18])
def test_answers_of_every_size(count: int) -> None:
    outputs = {"y": np.arange(count, dtype=np.float32), "t": np.array([b"a\0", b""], object), "z": np.array(2.5)}
    answer = rpc.response_to_message(InferResponse("m", "1", outputs, "7", {"k": "v"})).SerializeToString()
    found = READ(answer)
    assert list(found) == list(outputs)
    for name, array in outputs.items():
        np.testing.assert_array_equal(found[name], array)


@pytest.mark.parametrize("count", [0, 3, 1 << 18])
def test_requests_are_the_message_that_protobuf_writes(count: int) -> None:
    inputs = {"x": np.arange(count, dtype=np.int64), "t": np.array(["é"], object)}
    request = build_request("m", inputs, {"id": "7", "version": 2, "outputs": ["y"], "sequence_id": 3})
    call = GrpcWire().infer(request)
    assert Request.FromString(b"".join(call.parts)) == rpc.request_to_message(request)


@pytest.mark.parametrize(
    "answer",
    [b"\xff" * 9, b"\x0a\x05a", bytes([0x32, 0xFF, 0xFF, 0xFF, 0x7F]) + bytes(70_000), b"\x0b" + bytes(70_000)],
)
def test_answers_that_are_no_message_are_the_servers_fault(answer: bytes) -> None:
    with pytest.raises(errors.InferenceFailed):
        READ(answer)


def test_tensors_and_their_bytes_must_agree_in_number() -> None:
    message = rpc.response_to_message(InferResponse("m", "1", {"y": np.ones(3, np.float32)}))
    message.raw_output_contents.append(b"")
    with pytest.raises(errors.InferenceFailed, match="2 raw entries for 1 outputs"):
        READ(message.SerializeToString())
