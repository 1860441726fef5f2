"""What the HTTP client sends and how it reads replies, without a server."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import orjson
import pytest

from tidemill import errors
from tidemill.client.feed import build_request
from tidemill.client.http_core import (
    Reply,
    base_url,
    index_call,
    infer_call,
    metadata_call,
    read_index,
    read_infer,
    read_metadata,
    read_ready,
    ready_call,
)


def reply(status: int, content: bytes, **headers: str) -> Reply:
    return Reply(status, headers, content)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("localhost:8000", "http://localhost:8000"),
        ("http://localhost:8000/", "http://localhost:8000"),
        ("https://models.example.org/proxy/", "https://models.example.org/proxy"),
        ("[::1]:8000", "http://[::1]:8000"),
    ],
)
def test_addresses(given: str, expected: str) -> None:
    assert base_url(given) == expected


def test_paths_quote_names() -> None:
    assert metadata_call("a b/c", "1").path == "/v2/models/a%20b%2Fc/versions/1"
    assert metadata_call().path == "/v2"
    assert ready_call().path == "/v2/health/ready"
    assert ready_call("m").path == "/v2/models/m/ready"
    assert index_call().method == "POST"


def test_infer_sends_binary_and_says_where_it_begins() -> None:
    call = infer_call(build_request("m", {"x": np.ones(2, np.float32)}, outputs=["y"], version="2"))
    length = int(call.headers["inference-header-content-length"])
    assert call.path == "/v2/models/m/versions/2/infer"
    assert call.content[length:] == np.ones(2, np.float32).tobytes()
    assert json.loads(call.content[:length])["outputs"] == [{"name": "y", "parameters": {"binary_data": True}}]


def test_infer_without_a_byte_of_data_is_json() -> None:
    call = infer_call(build_request("m", {"x": np.empty((0, 2))}))
    assert "inference-header-content-length" not in call.headers
    assert json.loads(call.content)["inputs"][0]["parameters"] == {"binary_data_size": 0}


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
