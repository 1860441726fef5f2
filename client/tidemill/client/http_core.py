"""The HTTP client without HTTP: what to send for each call and how to read the reply; does no input or output."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import orjson

from tidemill.errors import InferenceFailed, InvalidArgument, TidemillError
from tidemill.protocol.index import ModelIndex
from tidemill.protocol.metadata import parse_index, parse_model_metadata, parse_server_metadata
from tidemill.protocol.rest import HEADER_LENGTH, format_infer_request, parse_header_length, parse_infer_response
from tidemill.protocol.status import error_from_http
from tidemill.protocol.types import Array, InferRequest, ModelMetadata, ServerMetadata

__all__ = [
    "Call",
    "Reply",
    "base_url",
    "index_call",
    "infer_call",
    "metadata_call",
    "read_index",
    "read_infer",
    "read_metadata",
    "read_ready",
    "read_server_metadata",
    "ready_call",
]

# Servers of the protocol differ in how they say it: Triton answers 400, others 404 for unknown models and 503.
_NOT_READY = (400, 404, 503)


@dataclass(frozen=True, slots=True)
class Call:
    """One HTTP request, ready to send."""

    method: str
    path: str
    headers: Mapping[str, str] = field(default_factory=dict)
    content: bytes = b""


@dataclass(frozen=True, slots=True)
class Reply:
    """One HTTP response; header names are lower case, the body is decompressed."""

    status: int
    headers: Mapping[str, str]
    content: bytes


def base_url(url: str) -> str:
    """The server's address with a scheme (http unless given) and without a trailing slash."""
    return (url if "://" in url else f"http://{url}").rstrip("/")


def infer_call(request: InferRequest) -> Call:
    """`POST /v2/models/NAME[/versions/VERSION]/infer`, all tensors as binary data in both directions."""
    header_length, parts = format_infer_request(request)
    headers = {"content-type": "application/json"}
    if header_length is not None:
        headers = {"content-type": "application/octet-stream", HEADER_LENGTH.lower(): str(header_length)}
    path = f"{_model_path(request.model_name, request.model_version)}/infer"
    return Call("POST", path, headers, b"".join(parts))


def read_infer(reply: Reply) -> dict[str, Array]:
    """The outputs by name, or the server's error."""
    _raise_for_status(reply)
    return dict(parse_infer_response(reply.content, _header_length(reply)).outputs)


def metadata_call(model: str = "", version: str = "") -> Call:
    """`GET /v2/models/NAME[/versions/VERSION]`, or `GET /v2` without a model."""
    return Call("GET", _model_path(model, version) if model else "/v2")


def read_metadata(reply: Reply) -> ModelMetadata:
    """The model's signature, or the server's error."""
    return parse_model_metadata(_document(reply))


def read_server_metadata(reply: Reply) -> ServerMetadata:
    """The server's name, version and extensions, or its error."""
    return parse_server_metadata(_document(reply))


def ready_call(model: str = "", version: str = "") -> Call:
    """`GET /v2/models/NAME[/versions/VERSION]/ready`, or `GET /v2/health/ready` without a model."""
    return Call("GET", f"{_model_path(model, version)}/ready" if model else "/v2/health/ready")


def read_ready(reply: Reply) -> bool:
    """Whether the reply says ready.

    Raises:
        TidemillError: The server could not say.
    """
    if reply.status in _NOT_READY:
        return False
    _raise_for_status(reply)
    return True


def index_call() -> Call:
    """`POST /v2/repository/index`."""
    return Call("POST", "/v2/repository/index", {"content-type": "application/json"}, b"{}")


def read_index(reply: Reply) -> tuple[ModelIndex, ...]:
    """The model versions that the repository knows, or the server's error."""
    return parse_index(_document(reply))


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
    return error_from_http(reply.status, str(text) or f"HTTP status {reply.status} without a text")
