"""Bodies of REST inference, as people, tritonclient and hostile callers write them."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import orjson
import pytest
from tritonclient.http import InferenceServerClient, InferInput, InferRequestedOutput, InferResult

from tidemill.dtype import DType
from tidemill.errors import InferenceFailed, InvalidArgument, Unsupported
from tidemill.protocol.raw import parse_raw_infer
from tidemill.protocol.rest import (
    format_infer_request,
    format_infer_response,
    parse_header_length,
    parse_infer,
    parse_infer_response,
)
from tidemill.protocol.types import InferRequest, InferResponse, ModelMetadata, RegionSlice, RequestedOutput, TensorSpec

X = {"name": "x", "shape": [1, 3], "datatype": "FP32", "data": [1.5, -0.0, 2]}
BINARY_X = {"name": "x", "shape": [1, 3], "datatype": "FP32", "parameters": {"binary_data_size": 12}}
BLOB = np.array([1, 2, 3], np.float32).tobytes()


def document(**changes: Any) -> bytes:
    return orjson.dumps({"inputs": [X], **changes})


def test_a_json_request() -> None:
    body = document(id="7", parameters={"timeout": 5, "mine": "a"}, outputs=[{"name": "y"}], unknown=1)
    request = parse_infer(body, None, model_name="m", model_version="3")
    assert (request.model_name, request.model_version, request.id) == ("m", "3", "7")
    assert request.parameters == {"timeout": 5, "mine": "a"}
    assert request.outputs == (RequestedOutput("y", binary=False),)
    np.testing.assert_array_equal(request.inputs["x"], np.array([[1.5, -0.0, 2]], np.float32))


def test_binary_inputs_take_their_bytes_in_order_and_json_inputs_none() -> None:
    texts = {"name": "t", "shape": [1], "datatype": "BYTES", "parameters": {"binary_data_size": 6}}
    header = orjson.dumps({"inputs": [BINARY_X, {**X, "name": "json"}, texts]})
    request = parse_infer(header + BLOB + b"\2\0\0\0\xff\0", len(header))
    assert list(request.inputs) == ["x", "json", "t"]
    assert request.inputs["x"].tolist() == [[1, 2, 3]]
    assert request.inputs["t"].tolist() == [b"\xff\0"]


@pytest.mark.parametrize(
    ("binary_output", "default", "expected"), [(None, True, True), (False, True, False), (True, False, True)]
)
def test_listed_outputs_inherit_the_requests_default(binary_output: bool | None, default: bool, expected: bool) -> None:
    output = {"name": "y"} if binary_output is None else {"name": "y", "parameters": {"binary_data": binary_output}}
    request = parse_infer(document(outputs=[output], parameters={"binary_data_output": default}), None)
    assert request.outputs == (RequestedOutput("y", binary=expected),)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"inputs": None}, "'inputs' is missing"),
        ({"inputs": {}}, "not a list of objects"),
        ({"inputs": [1]}, "not a list of objects"),
        ({"inputs": [{**X, "name": 3}]}, "an input has the name 3"),
        ({"inputs": [X, X]}, "input 'x' is given twice"),
        ({"inputs": [{**X, "datatype": "FLOAT"}]}, "input 'x': unknown datatype 'FLOAT'"),
        ({"inputs": [{**X, "datatype": ["FP32"]}]}, "input 'x': unknown datatype"),
        ({"inputs": [{**X, "shape": "3"}]}, "input 'x': shape is '3'"),
        ({"inputs": [{**X, "shape": [True, 3]}]}, "input 'x': shape is"),
        ({"inputs": [{**X, "shape": [1, 3.0]}]}, "input 'x': shape is"),
        ({"inputs": [{**X, "shape": [-1, 3]}]}, "must not be negative"),
        ({"inputs": [{**X, "data": [1, 2]}]}, "has 2 values, expected 3"),
        ({"inputs": [{**BINARY_X, "data": [1, 2, 3]}]}, "has binary_data_size and data; give exactly one"),
        ({"inputs": [{"name": "x", "shape": [1], "datatype": "FP32"}]}, "has no data; give exactly one"),
        ({"inputs": [BINARY_X]}, "expecting 12 additional bytes"),
        ({"inputs": [{**BINARY_X, "parameters": {"binary_data_size": -1}}]}, "binary_data_size is -1"),
        ({"inputs": [{**BINARY_X, "parameters": {"binary_data_size": "12"}}]}, "binary_data_size is '12'"),
        ({"inputs": [{**X, "parameters": 3}]}, "parameters of input 'x' are not an object"),
        ({"id": 7}, "unable to parse 'id': 7 is not a string"),
        ({"parameters": []}, "parameters of the request are not an object"),
        ({"parameters": {"triton_x": 1}}, "'triton_x' is a reserved name"),
        ({"parameters": {"a": None}}, "'a' must be a string, a number or a boolean"),
        ({"parameters": {"timeout": -1}}, "'timeout' is -1"),
        ({"outputs": [{"name": "y"}, {"name": "y"}]}, "output 'y' is asked for twice"),
        ({"outputs": [{"name": "y", "parameters": {"binary_data": 1}}]}, "binary_data is 1, expected a boolean"),
    ],
)
def test_wrong_documents_are_refused_with_the_place(changes: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidArgument, match=text):
        parse_infer(document(**changes), None)


IN_REGION = {"shared_memory_region": "r", "shared_memory_byte_size": 12, "shared_memory_offset": 4}


def test_inputs_and_outputs_may_lie_in_shared_memory() -> None:
    asked: list[RegionSlice] = []

    def read(piece: RegionSlice) -> bytes:
        asked.append(piece)
        return BLOB

    place = RegionSlice("r", 12, 4)
    body = document(
        inputs=[{**BINARY_X, "parameters": IN_REGION}],
        outputs=[{"name": "y", "parameters": {**IN_REGION, "binary_data": False}}, {"name": "z"}],
    )
    request = parse_infer(body, None, read_region=read)
    assert request.inputs["x"].tobytes() == BLOB
    assert asked == [place]
    assert request.outputs == (RequestedOutput("y", region=place), RequestedOutput("z"))
    outputs = {"y": np.zeros((1, 3), np.float32), "z": np.zeros(1, np.float32)}
    response = InferResponse("m", "1", outputs, regions={"y": place})
    length, buffers = format_infer_response(response, request)
    assert length is None
    placed, sent = json.loads(b"".join(buffers))["outputs"]
    assert placed == {"name": "y", "datatype": "FP32", "shape": [1, 3], "parameters": IN_REGION}
    assert sent["data"] == [0]


def test_shared_memory_is_not_offered_unless_somebody_reads_it() -> None:
    with pytest.raises(Unsupported, match="this server offers no shared memory"):
        parse_infer(document(inputs=[{**BINARY_X, "parameters": IN_REGION}]), None)


@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b"{", b'{"inputs": [NaN]}', b'{"inputs": 1e400}', b'"\\ud800"', b"\xff", b"[" * 100_000],
)
def test_bodies_that_are_no_json_object_are_refused(body: bytes) -> None:
    with pytest.raises(InvalidArgument, match="JSON"):
        parse_infer(body, None)


HEADER = orjson.dumps({"inputs": [BINARY_X]})


@pytest.mark.parametrize("header_length", [None, 0, len(HEADER) - 1, len(HEADER) + 1, len(HEADER) + 13, 2**63])
def test_only_the_right_header_length_parses(header_length: int | None) -> None:
    assert parse_infer(HEADER + BLOB, len(HEADER)).inputs["x"].shape == (1, 3)
    with pytest.raises(InvalidArgument):
        parse_infer(HEADER + BLOB, header_length)


@pytest.mark.parametrize(("tail", "text"), [(BLOB[:-1], "expecting 1 additional bytes"), (BLOB + b"!", "1 bytes")])
def test_binary_data_must_match_to_the_byte(tail: bytes, text: str) -> None:
    with pytest.raises(InvalidArgument, match=text):
        parse_infer(HEADER + tail, len(HEADER))


@pytest.mark.parametrize("text", ["-5", "abc", "", "1.0", "٣", " 1"])
def test_header_length_texts_that_are_no_number(text: str) -> None:
    with pytest.raises(InvalidArgument, match="Inference-Header-Content-Length"):
        parse_header_length(text)


def test_header_length_texts() -> None:
    assert parse_header_length(None) is None
    assert parse_header_length("134") == 134
    assert parse_header_length("9" * 10_000) == 2**63


def _model(*inputs: TensorSpec) -> ModelMetadata:
    return ModelMetadata("m", ("1",), "onnxruntime_onnx", inputs, ())


@pytest.mark.parametrize(
    ("dtype", "shape", "body", "expected"),
    [
        (DType.float32, ("batch", 3), BLOB, (1, 3)),
        (DType.float32, ("batch", 3), BLOB * 2, (2, 3)),
        (DType.uint8, ("batch", "n", 3), bytes(12), (1, 4, 3)),
        (DType.float32, (3,), BLOB, (3,)),
        (DType.string, ("batch",), b"image", (1,)),
        (DType.string, ("batch", 1), b"image", (1, 1)),
    ],
)
def test_raw_requests_find_their_shape(
    dtype: DType, shape: tuple[int | str, ...], body: bytes, expected: tuple[int, ...]
) -> None:
    request = parse_raw_infer(body, _model(TensorSpec("x", dtype, shape)))
    assert request.inputs["x"].shape == expected
    assert request.parameters == {"binary_data_output": True}


@pytest.mark.parametrize(
    ("inputs", "text"),
    [
        ((), "exactly one; model"),
        ((TensorSpec("a", DType.int8, (1,)), TensorSpec("b", DType.int8, (1,))), "'a', 'b'"),
        ((TensorSpec("x", DType.float32, (3, "n", "m")),), "more free dims"),
        ((TensorSpec("x", DType.float32, ("batch", 5)),), "expected"),
        ((TensorSpec("x", DType.string, (2,)),), "free dims"),
    ],
)
def test_raw_requests_that_cannot_fit(inputs: tuple[TensorSpec, ...], text: str) -> None:
    with pytest.raises(InvalidArgument, match=text):
        parse_raw_infer(BLOB, _model(*inputs))


RESPONSE = InferResponse(
    model_name="m",
    model_version="1",
    id="7",
    outputs={"y": np.array([[1.5, np.nan]], np.float32), "t": np.array([b"a\0", "é".encode()], object)},
)


def test_a_json_response_is_strict_json_in_tritons_key_order() -> None:
    length, parts = format_infer_response(RESPONSE, InferRequest("m", {}))
    text = b"".join(parts).decode()
    assert length is None
    assert json.loads(text, parse_constant=pytest.fail) == {
        "id": "7",
        "model_name": "m",
        "model_version": "1",
        "outputs": [
            {"name": "y", "datatype": "FP32", "shape": [1, 2], "data": [1.5, None]},
            {"name": "t", "datatype": "BYTES", "shape": [2], "data": ["a\0", "é"]},
        ],
    }
    assert text.index('"id"') < text.index('"model_name"') < text.index('"outputs"')


def test_outputs_come_in_the_form_that_was_asked_for() -> None:
    request = InferRequest("m", {}, outputs=(RequestedOutput("y", binary=True), RequestedOutput("t")))
    length, parts = format_infer_response(RESPONSE, request)
    assert length is not None
    header = json.loads(b"".join(parts)[:length])
    assert header["outputs"][0]["parameters"] == {"binary_data_size": 8}
    assert header["outputs"][1]["data"] == ["a\0", "é"]
    assert bytes(parts[1]) == RESPONSE.outputs["y"].tobytes()
    assert length % 8 == 0


def test_binary_outputs_without_a_byte_need_no_header_length() -> None:
    empty = InferResponse("m", "1", {"y": np.empty((0, 3), np.float32)})
    length, parts = format_infer_response(empty, InferRequest("m", {}, parameters={"binary_data_output": True}))
    assert length is None
    assert parse_infer_response(b"".join(parts), None).outputs["y"].shape == (0, 3)


@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize("listed", [True, False])
def test_a_clients_request_and_a_servers_answer_round_trip(binary: bool, listed: bool) -> None:
    tensors = {
        "f": np.array([[1, np.nan, 3]], np.float16),
        "i": np.array(-7),
        "b": np.array([True, False]),
        "t": np.array([[b"a"], [b""]], object),
        "e": np.empty((0, 2), np.float64),
    }
    outputs = tuple(RequestedOutput(name, binary) for name in tensors) if listed else ()
    sent = InferRequest("m", tensors, id="é", outputs=outputs, parameters={"custom": 1.5})
    length, parts = format_infer_request(sent, binary)
    received = parse_infer(b"".join(parts), length, model_name="m")
    _assert_equal(received.inputs, tensors)
    assert (received.id, received.outputs, received.parameters["custom"]) == ("é", outputs, 1.5)
    length, parts = format_infer_response(InferResponse("m", "1", received.inputs, id=received.id), received)
    answer = parse_infer_response(b"".join(parts), length)
    _assert_equal(answer.outputs, tensors)
    assert answer.id == "é"


def _assert_equal(given: Any, expected: Any) -> None:
    assert list(given) == list(expected)
    for name, array in expected.items():
        assert given[name].dtype == array.dtype
        np.testing.assert_array_equal(given[name], array)


def test_a_client_does_not_turn_infinities_into_nan() -> None:
    with pytest.raises(InvalidArgument, match="input 'x' holds an infinity"):
        format_infer_request(InferRequest("m", {"x": np.array([np.inf])}), binary=False)


@pytest.mark.parametrize("body", [b"{}", b"<html>", orjson.dumps({"outputs": [{**X, "data": [1]}]})])
def test_an_answer_against_the_protocol_is_not_the_callers_fault(body: bytes) -> None:
    with pytest.raises(InferenceFailed, match="the server's answer does not follow the protocol"):
        parse_infer_response(body, None)


TRITON_FORMS = [
    (dtype, binary)
    for dtype in DType
    for binary in (True, False)
    if not dtype.wire.startswith("FP8") and (binary or dtype not in (DType.float16, DType.bfloat16))
]


@pytest.mark.parametrize(("dtype", "binary"), TRITON_FORMS)
def test_tritonclient_bodies_are_read_and_answers_understood(dtype: DType, binary: bool) -> None:
    texts = np.array([[b"a\0b", b""]], object)
    array = texts if dtype is DType.string else np.array([[0, 1]]).astype(dtype.to_numpy())
    given = InferInput("x", [1, 2], dtype.wire)
    given.set_data_from_numpy(array, binary_data=binary)
    body, length = InferenceServerClient.generate_request_body(
        [given], request_id="7", outputs=[InferRequestedOutput("x", binary_data=binary)]
    )
    request = parse_infer(body, length, model_name="m")
    np.testing.assert_array_equal(request.inputs["x"], array)
    length, parts = format_infer_response(InferResponse("m", "1", request.inputs, id=request.id), request)
    result = InferResult.from_response_body(b"".join(parts), header_length=length)
    expected = np.array([["a\0b", ""]], object) if dtype is DType.string and not binary else array
    np.testing.assert_array_equal(result.as_numpy("x"), expected)
    assert result.get_response()["id"] == "7"
