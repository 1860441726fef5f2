"""Messages of gRPC inference, as tritonclient, KServe's typed clients and hostile callers fill them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tritonclient.grpc import InferInput, InferRequestedOutput, InferResult, service_pb2
from tritonclient.grpc._utils import _get_inference_request

from tidemill.dtype import DType
from tidemill.errors import InferenceFailed, InvalidArgument, Unsupported
from tidemill.protocol import messages
from tidemill.protocol.index import ModelIndex
from tidemill.protocol.rpc import (
    index_from_message,
    index_to_message,
    metadata_from_message,
    metadata_to_message,
    request_from_message,
    request_to_message,
    response_from_message,
    response_to_message,
    server_metadata_from_message,
    server_metadata_to_message,
)
from tidemill.protocol.types import (
    InferRequest,
    InferResponse,
    ModelMetadata,
    RegionSlice,
    RequestedOutput,
    ServerMetadata,
    TensorSpec,
)

X: dict[str, Any] = {"name": "x", "datatype": "FP32", "shape": [1, 2]}
RAW = np.array([1.5, np.nan], np.float32).tobytes()
IN_REGION = {
    "shared_memory_region": {"string_param": "r"},
    "shared_memory_byte_size": {"int64_param": 8},
    "shared_memory_offset": {"int64_param": 4},
}


def message(*inputs: dict[str, Any], raw: tuple[bytes, ...] = (), **fields: Any) -> Any:
    return messages.ModelInferRequest(inputs=inputs, raw_input_contents=raw, **fields)


def every_dtype() -> dict[str, np.ndarray]:
    arrays = {d.wire: np.array([[0, 1]]).astype(d.to_numpy()) for d in DType if d is not DType.string}
    return {**arrays, "BYTES": np.array([[b"a\0", b"\xff"]], object), "none": np.empty((0, 3)), "one": np.array(2.5)}


def test_requests_and_responses_round_trip() -> None:
    parameters = {"b": True, "i": -1, "u": 2**64 - 1, "f": 0.5, "s": "é", "timeout": 5}
    sent = InferRequest("m", every_dtype(), "3", "7", (RequestedOutput("y", binary=True),), parameters)
    received = request_from_message(messages.ModelInferRequest.FromString(request_to_message(sent).SerializeToString()))
    assert (received.model_name, received.model_version, received.id) == ("m", "3", "7")
    assert (received.outputs, received.parameters) == (sent.outputs, parameters)
    _assert_equal(received.inputs, sent.inputs)
    answer = InferResponse("m", "3", received.inputs, "7", {"p": 1})
    back = response_from_message(response_to_message(answer))
    assert (back.model_name, back.model_version, back.id, back.parameters) == ("m", "3", "7", {"p": 1})
    _assert_equal(back.outputs, sent.inputs)


def _assert_equal(given: Any, expected: Any) -> None:
    assert list(given) == list(expected)
    for name, array in expected.items():
        assert (given[name].dtype, given[name].shape) == (array.dtype, array.shape)
        np.testing.assert_array_equal(given[name], array)


@pytest.mark.parametrize(
    ("dtype", "field", "values"),
    [
        ("BOOL", "bool_contents", [True, False]),
        ("INT8", "int_contents", [-128, 127]),
        ("INT16", "int_contents", [-(2**15), 2**15 - 1]),
        ("INT32", "int_contents", [-(2**31), 2**31 - 1]),
        ("INT64", "int64_contents", [-(2**63), 2**63 - 1]),
        ("UINT8", "uint_contents", [0, 255]),
        ("UINT16", "uint_contents", [0, 2**16 - 1]),
        ("UINT32", "uint_contents", [0, 2**32 - 1]),
        ("UINT64", "uint64_contents", [0, 2**64 - 1]),
        ("FP32", "fp32_contents", [1.5, float("inf")]),
        ("FP64", "fp64_contents", [1.5, float("-inf")]),
        ("BYTES", "bytes_contents", [b"a\0", b""]),
    ],
)
def test_typed_contents_are_read(dtype: str, field: str, values: list[Any]) -> None:
    request = request_from_message(message({**X, "datatype": dtype, "contents": {field: values}}))
    assert request.inputs["x"].dtype == DType.from_wire(dtype).to_numpy()
    assert request.inputs["x"].tolist() == [values]


@pytest.mark.parametrize(
    ("item", "raw"), [({**X, "shape": [0, 3]}, (b"",)), ({**X, "shape": [0, 3], "contents": {}}, ()), (X, (RAW,))]
)
def test_zero_size_and_raw_inputs(item: dict[str, Any], raw: tuple[bytes, ...]) -> None:
    assert request_from_message(message(item, raw=raw)).inputs["x"].shape == tuple(item["shape"])


@pytest.mark.parametrize(
    ("inputs", "raw", "text"),
    [
        ([X], (), "input 'x' has 0 values, expected 2"),
        ([X, {**X, "name": "z"}], (RAW,), "input 'z' has no data"),
        ([X], (RAW, b""), "2 raw entries for 1 inputs: 1 belong to no tensor"),
        ([X], (RAW[:-1],), "input 'x' has 7 bytes, expected 8"),
        ([X, X], (RAW, RAW), "input 'x' is given twice"),
        ([{**X, "name": ""}], (RAW,), "an input has no name"),
        ([{**X, "datatype": "TYPE_FP32"}], (RAW,), "input 'x': unknown datatype 'TYPE_FP32'"),
        ([{**X, "shape": [-1, 2]}], (RAW,), "must not be negative"),
        ([{**X, "contents": {"fp32_contents": [1, 2]}}], (RAW,), "typed contents in a message with raw contents"),
        ([{**X, "contents": {"fp64_contents": [1, 2]}}], (), "fills fp64_contents, but FP32 belongs in fp32_contents"),
        ([{**X, "contents": {"fp32_contents": [1, 2], "int_contents": [1]}}], (), "but FP32 belongs in"),
        ([{**X, "contents": {"fp32_contents": [1]}}], (), "has 1 values, expected 2"),
        ([{**X, "datatype": "INT8", "contents": {"int_contents": [0, 128]}}], (), "128 at index 1 does not fit INT8"),
        (
            [{**X, "datatype": "UINT8", "contents": {"uint_contents": [256, 0]}}],
            (),
            "256 at index 0 does not fit",
        ),
        ([{**X, "datatype": "FP16", "contents": {"fp32_contents": [1, 2]}}], (), "FP16 has no typed contents"),
    ],
)
def test_wrong_inputs_are_refused_with_the_place(
    inputs: list[dict[str, Any]], raw: tuple[bytes, ...], text: str
) -> None:
    with pytest.raises(InvalidArgument, match=text):
        request_from_message(message(*inputs, raw=raw))


@pytest.mark.parametrize(
    ("fields", "error", "text"),
    [
        ({"parameters": {"a": {}}}, InvalidArgument, "parameter 'a' has no value"),
        ({"parameters": {"timeout": {"int64_param": -1}}}, InvalidArgument, "'timeout' is -1"),
        ({"parameters": {"sequence_end": {"int64_param": 1}}}, InvalidArgument, "'sequence_end' is 1"),
        ({"parameters": {"triton_x": {"bool_param": True}}}, InvalidArgument, "reserved"),
        ({"outputs": [{"name": "y"}, {"name": "y"}]}, InvalidArgument, "output 'y' is asked for twice"),
        ({"outputs": [{"name": "y", "parameters": {"classification": {"int64_param": -2}}}]}, InvalidArgument, "-2"),
    ],
)
def test_wrong_parameters_and_outputs(fields: dict[str, Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        request_from_message(message(X, raw=(RAW,), **fields))


def test_shared_memory_is_not_offered() -> None:
    with pytest.raises(Unsupported, match="this server offers no shared memory"):
        request_from_message(message({**X, "parameters": IN_REGION}))


def test_inputs_and_outputs_may_lie_in_shared_memory() -> None:
    place = RegionSlice("r", 8, 4)
    sent = message(
        {**X, "parameters": IN_REGION}, X | {"name": "w"}, raw=(RAW,), outputs=[{"name": "y"}, {"name": "z"}]
    )
    sent.outputs[0].parameters["shared_memory_region"].string_param = "r"
    sent.outputs[0].parameters["shared_memory_byte_size"].int64_param = 8
    sent.outputs[0].parameters["shared_memory_offset"].int64_param = 4
    asked: list[RegionSlice] = []

    def read(piece: RegionSlice) -> bytes:
        asked.append(piece)
        return RAW

    request = request_from_message(sent, read)
    assert list(request.inputs) == ["x", "w"]
    assert [array.tobytes() for array in request.inputs.values()] == [RAW, RAW]
    assert asked == [place]
    assert [output.region for output in request.outputs] == [place, None]
    arrays = {"y": np.zeros(2, np.float32), "z": np.ones(1, np.float32)}
    answer = response_to_message(InferResponse("m", "1", arrays, regions={"y": place}))
    # An empty entry keeps the others where clients look for them.
    assert list(answer.raw_output_contents) == [b"", np.float32(1).tobytes()]
    assert answer.outputs[0].parameters["shared_memory_byte_size"].int64_param == 8


def test_an_answer_against_the_protocol_is_not_the_callers_fault() -> None:
    with pytest.raises(InferenceFailed, match="the server's answer does not follow the protocol"):
        response_from_message(messages.ModelInferResponse(outputs=[X], raw_output_contents=[b"1"]))


TRITON_DTYPES = [dtype for dtype in DType if not dtype.wire.startswith("FP8")]


@pytest.mark.parametrize("dtype", TRITON_DTYPES, ids=lambda dtype: dtype.name)
def test_tritonclient_requests_are_read_and_answers_understood(dtype: DType) -> None:
    texts = np.array([[b"a\0b", b""]], object)
    array = texts if dtype is DType.string else np.array([[0, 1]]).astype(dtype.to_numpy())
    given = InferInput("x", [1, 2], dtype.wire)
    given.set_data_from_numpy(array)
    theirs = _triton_request(given)
    request = request_from_message(messages.ModelInferRequest.FromString(theirs.SerializeToString()))
    assert request.parameters == {"priority": 2, "timeout": 9, "custom": "a"}
    np.testing.assert_array_equal(request.inputs["x"], array)
    answer = response_to_message(InferResponse("m", "1", request.inputs, id=request.id))
    result = InferResult(service_pb2.ModelInferResponse.FromString(answer.SerializeToString()))
    np.testing.assert_array_equal(result.as_numpy("x"), array)
    assert result.get_response().id == "7"


def _triton_request(given: InferInput) -> Any:
    return _get_inference_request(
        model_name="m",
        inputs=[given],
        model_version="",
        request_id="7",
        outputs=[InferRequestedOutput("x")],
        sequence_id=0,
        sequence_start=False,
        sequence_end=False,
        priority=2,
        timeout=9,
        parameters={"custom": "a"},
    )


def test_metadata_round_trip() -> None:
    server = ServerMetadata("tidemill", "1.2", ("binary_tensor_data",))
    assert server_metadata_from_message(server_metadata_to_message(server)) == server
    inputs = (TensorSpec("x", DType.float32, ("", 3)), TensorSpec("s", DType.string, ()))
    model = ModelMetadata("m", ("1", "2"), "onnxruntime_onnx", inputs, ())
    assert metadata_from_message(metadata_to_message(model)) == model
    index = (ModelIndex("a", "1", "READY"), ModelIndex("b"), ModelIndex("c", "2", "UNAVAILABLE", "unloaded"))
    assert index_from_message(index_to_message(index)) == index


def test_unknown_datatypes_in_metadata_are_reported() -> None:
    with pytest.raises(InferenceFailed, match="unknown datatype 'ODD'"):
        metadata_from_message(messages.ModelMetadataResponse(name="m", inputs=[{**X, "datatype": "ODD"}]))
