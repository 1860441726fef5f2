"""What the HTTP client sends and how it reads replies, without a server."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import orjson
import pytest

from tidemill import errors
from tidemill.client.attempts import NotRun
from tidemill.client.feed import build_request
from tidemill.client.http_core import HttpWire, Reply
from tidemill.client.model import check_inputs, check_outputs

WIRE = HttpWire()
read_infer = WIRE.infer(build_request("m", {})).read
read_metadata = WIRE.metadata("m").read
read_index = WIRE.index().read
read_ready = WIRE.ready().read


def reply(status: int, content: bytes, **headers: str) -> Reply:
    return Reply(status, headers, content)


def test_paths_quote_names() -> None:
    assert WIRE.metadata("a b/c", "1").target == "GET /v2/models/a%20b%2Fc/versions/1"
    assert WIRE.server_metadata().target == "GET /v2"
    assert WIRE.ready().target == "GET /v2/health/ready"
    assert WIRE.ready("m").target == "GET /v2/models/m/ready"
    assert WIRE.index().target == "POST /v2/repository/index"


def test_infer_sends_binary_and_says_where_it_begins() -> None:
    call = WIRE.infer(build_request("m", {"x": np.ones(2, np.float32)}, {"outputs": ["y"], "version": 2}))
    length = int(call.headers.split("inference-header-content-length: ")[1])
    content = b"".join(call.parts)
    assert call.target == "POST /v2/models/m/versions/2/infer"
    assert content[length:] == np.ones(2, np.float32).tobytes()
    assert json.loads(content[:length])["outputs"] == [{"name": "y", "parameters": {"binary_data": True}}]


def test_infer_without_a_byte_of_data_is_json() -> None:
    call = WIRE.infer(build_request("m", {"x": np.empty((0, 2))}))
    assert "inference-header-content-length" not in call.headers
    assert json.loads(b"".join(call.parts))["inputs"][0]["parameters"] == {"binary_data_size": 0}


def test_a_server_that_tells_nothing_of_a_model() -> None:
    told = read_metadata(reply(200, b'{"name": "m", "versions": null, "platform": "", "inputs": [], "outputs": []}'))
    assert told.versions == ()
    assert list(check_inputs(told, {"x": [1.5]})) == ["x"]
    check_outputs(told, ["y"])


@pytest.mark.parametrize(("status", "safe"), [(429, True), (502, False), (503, True)])
def test_a_proxys_error_may_come_after_a_run(status: int, safe: bool) -> None:
    with pytest.raises(errors.Unavailable) as caught:
        read_infer(reply(status, b"{}"))
    assert isinstance(caught.value, NotRun) is safe


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b'{"error": "the model is busy"}', "the model is busy"),
        (b"<html>bad gateway</html>", "<html>bad gateway</html>"),
        (b"\xff\xfe", "\ufffd"),
        (b"[]", r"\[\]"),
        (b"", "HTTP status 503 without a text"),
    ],
)
def test_errors_carry_what_text_there_is(content: bytes, text: str) -> None:
    with pytest.raises(errors.Unavailable, match=text):
        read_metadata(reply(503, content))


@pytest.mark.parametrize(("status", "expected"), [(200, True), (400, False), (404, False), (503, False)])
def test_readiness(status: int, expected: bool) -> None:
    assert read_ready(reply(status, b"")) is expected


def test_readiness_that_cannot_be_told_is_an_error() -> None:
    with pytest.raises(errors.Unauthenticated):
        read_ready(reply(401, b'{"error": "no key"}'))


@pytest.mark.parametrize(
    ("read", "answer"),
    [
        (read_metadata, reply(200, b"hello")),
        (read_index, reply(200, b"[3]")),
        (read_infer, reply(200, b"{}")),
        (read_infer, reply(200, orjson.dumps({"outputs": []}), **{"inference-header-content-length": "99"})),
        (read_infer, reply(200, b"{}", **{"inference-header-content-length": "odd"})),
    ],
)
def test_answers_against_the_protocol_are_the_servers_fault(read: Any, answer: Reply) -> None:
    with pytest.raises(errors.InferenceFailed):
        read(answer)
