"""Requests read and answered together are read and answered as single ones are."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from tidemill.protocol import messages, rest, rpc
from tidemill.protocol.alike import Alike
from tidemill.protocol.rest_alike import learn_binary, learn_json
from tidemill.protocol.rpc_alike import learn_rpc, varint
from tidemill.protocol.types import InferRequest, InferResponse, RequestedOutput

DTYPES = ["int8", "uint16", "int32", "int64", "float16", "float32", "float64"]
SHAPES = arrays.array_shapes(min_dims=1, max_dims=3, max_side=3)


def feeds(count: int, names: list[str]) -> st.SearchStrategy[list[dict[str, Any]]]:
    """Feeds of the same dtypes and shapes."""

    @st.composite
    def draw_feeds(draw: st.DrawFn) -> list[dict[str, Any]]:
        kinds = {name: (draw(st.sampled_from(DTYPES)), draw(SHAPES)) for name in names}
        return [{name: draw(arrays.arrays(*kind)) for name, kind in kinds.items()} for _ in range(count)]

    return draw_feeds()


def joined(feeds: list[dict[str, Any]]) -> dict[str, Any]:
    return {name: np.concatenate([feed[name] for feed in feeds]) for name in feeds[0]}


def assert_read(alike: Alike | None, sent: list[bytes], expected: list[dict[str, Any]]) -> None:
    assert alike is not None
    found = alike.read(sent)
    assert found is not None
    for name, array in joined(expected).items():
        assert found[name].dtype == array.dtype
        np.testing.assert_array_equal(found[name], array)


@given(feeds(3, ["x", "more"]))
def test_binary_requests_are_read_together(given_feeds: list[dict[str, Any]]):
    wanted = (RequestedOutput("y", binary=True),)
    sent = []
    for feed in given_feeds:
        length, buffers = rest.format_infer_request(InferRequest("m", feed, outputs=wanted))
        assert length is not None
        sent.append(b"head" + b"".join(map(bytes, buffers)))
    request = rest.parse_infer(sent[0][4:], length)
    assert_read(learn_binary(request, 4 + length, len(sent[0]) - 4 - length), sent, given_feeds)


@given(feeds(3, ["x", "more"]))
def test_messages_are_read_together(given_feeds: list[dict[str, Any]]):
    sent = [rpc.request_to_message(InferRequest("m", feed)).SerializeToString() for feed in given_feeds]
    assert_read(learn_rpc(sent[0]), sent, given_feeds)


@given(
    st.lists(
        st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=4, max_size=4),
        min_size=2,
        max_size=4,
    )
)
def test_json_requests_are_read_together(values: list[list[float]]):
    sent = [b"head" + json.dumps(document(value)).encode() for value in values]
    request = rest.parse_infer(sent[0][4:], None)
    expected = [{"x": np.array([value], np.float32)} for value in values]
    assert_read(learn_json(request, sent[0], 4, sent[0].index(b"[", sent[0].index(b'"data"'))), sent, expected)


def document(data: Any, **more: Any) -> dict[str, Any]:
    return {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 4], "data": data}], **more}


def json_kind(first: dict[str, Any]) -> Alike | None:
    sent = orjson.dumps(first)
    return learn_json(rest.parse_infer(sent, None), sent, 0, sent.index(b"[", sent.index(b'"data"')))


@pytest.mark.parametrize(
    "others",
    [
        (b"[1,2,3]",),
        (b"[1,2,3,4,5]",),
        (b'[1,2,3,"4"]',),
        (b"[1,2,3,true]",),
        (b"[1,2,3,null]",),
        (b"[1,2,3,1e39]",),
        (b"[[1,2,3,4]]",),
        (b"[1,2,3,4",),
        (b"[1,2,3,4],[1,2,3,4]",),
        (b"[1,2,3,4],[1,2,3,4]", b"[]"),
        (b'["]', b'["]', b"[1,2,3,4],[1,2,3,4]"),
        (b"[[1,2,3,4]", b"[1,2,3,4]]", b"[1,2,3,4],[1,2,3,4]"),
    ],
)
def test_no_text_passes_for_another_list(others: tuple[bytes, ...]):
    alike = json_kind(document([1, 2, 3, 4]))
    assert alike is not None
    whole = orjson.dumps(document([1, 2, 3, 4]))
    assert alike.read([whole]) is not None
    assert alike.read([whole, *(whole.replace(b"[1,2,3,4]", other) for other in others)]) is None


@pytest.mark.parametrize(
    "first",
    [
        document([1, 2, 3, 4], id="one"),
        document([1, 2, 3, 4], parameters={"timeout": 5}),
        document([1, 2, 3, 4], outputs=[{"name": "y", "parameters": {"binary_data": True}}]),
        document([1, 2, 3, 4], outputs=[{"name": "y", "parameters": {"classification": 1}}]),
        {"parameters": {"note": '"data": [1]'}, **document([1, 2, 3, 4])},
        document([[1, 2], [3, 4]]),
    ],
)
def test_what_is_odd_is_not_learned(first: dict[str, Any]):
    assert json_kind(first) is None


def test_a_message_with_more_than_its_tensors_is_not_learned():
    message = rpc.request_to_message(InferRequest("m", {"x": np.zeros((1, 2), np.float32)}))
    assert learn_rpc(message.SerializeToString())
    message.parameters["timeout"].int64_param = 5
    assert learn_rpc(message.SerializeToString()) is None
    message = rpc.request_to_message(InferRequest("m", {"x": np.zeros((1, 2), np.float32)}, id="one"))
    assert learn_rpc(message.SerializeToString()) is None
    plain = rpc.request_to_message(InferRequest("m", {"x": np.zeros((1, 2), np.float32)})).SerializeToString()
    assert learn_rpc(plain + b"\x1a\x00") is None


@given(feeds(3, ["y", "more"]))
def test_answers_are_written_together_as_singly(answers: list[dict[str, Any]]):
    binary = InferRequest("m", answers[0], outputs=tuple(RequestedOutput(name, binary=True) for name in answers[0]))
    single = [InferResponse("m", "1", answer) for answer in answers]
    together = InferResponse("m", "1", joined(answers))
    size = sum(array.nbytes for array in answers[0].values())
    kind = learn_binary(binary, 7, size)
    assert kind is not None
    length, bodies = kind.write(together, 3) or (None, [])
    for body, answer in zip(bodies, single, strict=True):
        expected_length, buffers = rest.format_infer_response(answer, binary)
        assert (length, body) == (expected_length, b"".join(map(bytes, buffers)))
    message = rpc.request_to_message(InferRequest("m", answers[0])).SerializeToString()
    of_rpc = learn_rpc(message)
    assert of_rpc is not None
    _, bodies = of_rpc.write(together, 3) or (None, [])
    assert [messages.ModelInferResponse.FromString(body) for body in bodies] == [*map(rpc.response_to_message, single)]


@given(feeds(3, ["y", "more"]))
def test_json_answers_are_written_together_as_singly(answers: list[dict[str, Any]]):
    alike = json_kind(document([1, 2, 3, 4]))
    assert alike is not None
    written = alike.write(InferResponse("m", "1", joined(answers)), 3)
    assert written is not None
    request = InferRequest("m", {})
    for body, answer in zip(written[1], answers, strict=True):
        _, (expected,) = rest.format_infer_response(InferResponse("m", "1", answer), request)
        assert body == bytes(expected)


@given(st.integers(0, 2**63))
def test_varints_are_those_of_protobuf(value: int):
    message = messages.ModelInferRequest(model_name="m")
    message.parameters["k"].uint64_param = value
    assert varint(value) in message.SerializeToString()
