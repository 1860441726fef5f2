"""The HTTP client without HTTP: what to send for each call and how to read the reply; does no input or output."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import quote

import orjson

from tidemill.client.attempts import NotRun
from tidemill.client.call import Call
from tidemill.errors import InferenceFailed, InvalidArgument, TidemillError
from tidemill.protocol.index import ModelIndex
from tidemill.protocol.metadata import parse_index, parse_model_metadata, parse_server_metadata
from tidemill.protocol.rest import HEADER_LENGTH, format_infer_request, parse_header_length, parse_infer_response
from tidemill.protocol.status import error_from_http
from tidemill.protocol.types import Array, InferRequest, ModelMetadata, RequestedOutput, ServerMetadata

__all__ = ["HttpWire", "Reply"]

# Servers of the protocol differ in how they say it: Triton answers 400, others 404 for unknown models and 503.
_NOT_READY = (400, 404, 503)
# The server says that it did not take the request; a proxy's 502 or 504 may come after a run.
_REFUSED = (429, 503)
_JSON = "content-type: application/json\r\n"
_BINARY = f"content-type: application/octet-stream\r\n{HEADER_LENGTH.lower()}: "


@dataclass(frozen=True, slots=True)
class Reply:
    """One HTTP response; header names are lower case."""

    status: int
    headers: Mapping[str, str]
    content: bytes | bytearray


class HttpWire:
    """The questions of the protocol as HTTP requests.

    Args:
        binary: Whether tensors travel as binary data, an extension of Triton's that some servers lack, or as JSON.
    """

    def __init__(self, binary: bool = True) -> None:
        self._binary = binary

    def infer(self, request: InferRequest) -> Call[dict[str, Array]]:
        """`POST /v2/models/NAME[/versions/VERSION]/infer`, all tensors in one form in both directions."""
        if not self._binary:
            outputs = tuple(RequestedOutput(output.name) for output in request.outputs)
            request = replace(request, outputs=outputs)
        header_length, parts = format_infer_request(request, self._binary)
        path = f"POST {_model_path(request.model_name, request.model_version)}/infer"
        headers = _JSON if header_length is None else f"{_BINARY}{header_length}\r\n"
        return Call(path, _read_infer, parts, headers, repeatable=False)

    def metadata(self, model: str, version: str = "") -> Call[ModelMetadata]:
        """`GET /v2/models/NAME[/versions/VERSION]`."""
        return Call(f"GET {_model_path(model, version)}", lambda reply: parse_model_metadata(_document(reply)))

    def server_metadata(self) -> Call[ServerMetadata]:
        """`GET /v2`."""
        return Call("GET /v2", lambda reply: parse_server_metadata(_document(reply)))

    def ready(self, model: str = "", version: str = "") -> Call[bool]:
        """`GET /v2/models/NAME[/versions/VERSION]/ready`, or `GET /v2/health/ready` without a model."""
        path = f"{_model_path(model, version)}/ready" if model else "/v2/health/ready"
        return Call(f"GET {path}", _read_ready)

    def index(self) -> Call[tuple[ModelIndex, ...]]:
        """`POST /v2/repository/index`."""
        return Call("POST /v2/repository/index", lambda reply: parse_index(_document(reply)), [b"{}"], _JSON)


def _read_infer(reply: Reply) -> dict[str, Array]:
    _raise_for_status(reply)
    return dict(parse_infer_response(reply.content, _header_length(reply)).outputs)


def _read_ready(reply: Reply) -> bool:
    if reply.status in _NOT_READY:
        return False
    _raise_for_status(reply)
    return True


def _model_path(model: str, version: str) -> str:
    path = f"/v2/models/{quote(model, safe='')}"
    return f"{path}/versions/{quote(version, safe='')}" if version else path


def _header_length(reply: Reply) -> int | None:
    try:
        return parse_header_length(reply.headers.get(HEADER_LENGTH.lower()))
    except InvalidArgument as error:
        raise InferenceFailed(f"the server's answer does not follow the protocol: {error}") from error


def _document(reply: Reply) -> Any:
    _raise_for_status(reply)
    try:
        return orjson.loads(reply.content)
    except orjson.JSONDecodeError as error:
        raise InferenceFailed(f"the server's answer is not JSON: {error}") from error


def _raise_for_status(reply: Reply) -> None:
    if reply.status != 200:
        raise _error(reply)


def _error(reply: Reply) -> TidemillError:
    try:
        text = orjson.loads(reply.content)["error"]
    except (orjson.JSONDecodeError, KeyError, TypeError):
        # A proxy's page rather than the server's answer: its first words are the best there is.
        text = reply.content[:200].decode(errors="replace").strip()
    told = str(text) or f"HTTP status {reply.status} without a text"
    return NotRun(told) if reply.status in _REFUSED else error_from_http(reply.status, told)
