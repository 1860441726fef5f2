"""Every error as a status and {"error": text}, whichever layer it comes from; the statuses are the protocol's."""

from __future__ import annotations

import logging

import orjson
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from tidemill.errors import TidemillError
from tidemill.protocol.status import status_of
from tidemill.serving.request_id import tell_unexpected

__all__ = ["error_response", "http_exception_handler", "unexpected_error_handler"]

_LOG = logging.getLogger("tidemill.http")


def error_response(error: BaseException, request_id: str = "") -> Response:
    """The answer to a request that failed; what is no TidemillError is logged and told to nobody."""
    if not isinstance(error, TidemillError):
        return _answer(500, tell_unexpected(_LOG, error, request_id))
    status = status_of(error).http
    headers = {}
    if status == 503:
        headers["retry-after"] = "1"
    elif status == 415:
        headers["accept-encoding"] = "gzip, deflate"
    return _answer(status, str(error), headers)


async def http_exception_handler(request: Request, error: Exception) -> Response:
    """Answer what the router refuses: unknown paths and wrong methods."""
    assert isinstance(error, HTTPException)
    headers = dict(error.headers or {})
    text = error.detail
    if error.status_code == 404:
        text = f"there is no {request.method} {request.url.path[:200]!r} here"
    elif error.status_code == 405:
        text = f"{request.method} is not allowed on {request.url.path!r}; use {headers.get('Allow', 'another')}"
    return _answer(error.status_code, text, headers)


async def unexpected_error_handler(_request: Request, error: Exception) -> Response:
    """Answer what nobody expected."""
    return _answer(500, tell_unexpected(_LOG, error))


def _answer(status: int, text: str, headers: dict[str, str] | None = None) -> Response:
    return Response(orjson.dumps({"error": text}), status, headers, "application/json")
