"""Whatever a caller sends, parsing ends in a request or in an error of the caller, never in another exception."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import orjson
import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from tidemill.dtype import DType
from tidemill.errors import InferenceFailed, InvalidArgument, Unsupported
from tidemill.protocol import messages
from tidemill.protocol.rest import parse_infer, parse_infer_response
from tidemill.protocol.rpc import request_from_message

REFUSALS = (InvalidArgument, Unsupported)
SCALARS = (
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | st.text(max_size=3)
)
JSON = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=6,
)
DATATYPES = st.sampled_from([dtype.wire for dtype in DType])
SHAPES = st.lists(st.sampled_from([0, 1, 2, 3, -1, 2**31, 2**63]), max_size=3)


def _object(**fields: Any) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional={name: JSON | strategy for name, strategy in fields.items()})


TENSOR_PARAMETERS = _object(binary_data_size=st.integers(0, 20), binary_data=st.booleans(), classification=JSON)
TENSOR = _object(name=st.text(), shape=SHAPES, datatype=DATATYPES, data=JSON, parameters=TENSOR_PARAMETERS)
DOCUMENT = _object(id=st.text(), parameters=JSON, inputs=st.lists(TENSOR), outputs=st.lists(TENSOR))


@given(DOCUMENT, st.binary(max_size=30), st.integers(-2, 2) | st.none())
def test_rest_requests(document: dict[str, Any], tail: bytes, shift: int | None) -> None:
    header = orjson.dumps(document)
    length = None if shift is None else len(header) + shift
    with suppress(*REFUSALS):
        parse_infer(header + tail, length)


@given(DOCUMENT, st.binary(max_size=30))
def test_rest_responses(document: dict[str, Any], tail: bytes) -> None:
    header = orjson.dumps(document)
    with suppress(InferenceFailed, Unsupported):
        parse_infer_response(header + tail, len(header))


@given(st.binary(max_size=60))
def test_rest_requests_of_any_bytes(body: bytes) -> None:
    with suppress(*REFUSALS):
        parse_infer(body, None)


NUMBERS = st.lists(st.integers(0, 300), max_size=3)
CONTENTS = st.fixed_dictionaries({}, optional={"int_contents": NUMBERS, "uint_contents": NUMBERS})
INPUT = st.fixed_dictionaries(
    {"name": st.text(max_size=2), "shape": st.lists(st.integers(-1, 3) | st.just(2**62), max_size=3)},
    optional={"datatype": DATATYPES | st.text(max_size=4), "contents": CONTENTS},
)


@given(st.lists(INPUT, max_size=3), st.lists(st.binary(max_size=12), max_size=3))
def test_rpc_requests(inputs: list[dict[str, Any]], raw: list[bytes]) -> None:
    with suppress(*REFUSALS):
        request_from_message(messages.ModelInferRequest(inputs=inputs, raw_input_contents=raw))


@given(st.binary(max_size=60))
def test_rpc_requests_of_any_bytes(body: bytes) -> None:
    with suppress(DecodeError, *REFUSALS):
        request_from_message(messages.ModelInferRequest.FromString(body))


def test_a_huge_claim_allocates_nothing() -> None:
    tensor = {"name": "x", "shape": [2**40], "datatype": "BYTES", "parameters": {"binary_data_size": 4}}
    header = orjson.dumps({"inputs": [tensor]})
    with pytest.raises(InvalidArgument, match="too few for 1099511627776 BYTES elements"):
        parse_infer(header + b"\0\0\0\0", len(header))
