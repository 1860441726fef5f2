"""Small JSON bodies of the management routes: read within a limit, written as they are."""

from __future__ import annotations

from typing import Any

import orjson
from fastapi import Request, Response

from tidemill.errors import InvalidArgument
from tidemill.serving.http.body import read_body

__all__ = ["json_response", "parameters_of", "read_object"]

_LIMIT = 64 << 10


async def read_object(request: Request, limit: int = _LIMIT) -> dict[str, Any]:
    """The body as a JSON object, whatever its content type; an empty body is an empty object.

    Raises:
        InvalidArgument: The body is something else.
        TooLarge: It is over `limit`.
    """
    body = await read_body(request.receive, limit)
    if not body:
        return {}
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise InvalidArgument(f"the body is not JSON: {error}") from None
    if not isinstance(document, dict):
        raise InvalidArgument("the body's JSON is not an object")
    return document


def parameters_of(document: dict[str, Any]) -> dict[str, Any]:
    """The object under "parameters"; empty if there is none."""
    parameters = document.get("parameters") or {}
    if not isinstance(parameters, dict):
        raise InvalidArgument("'parameters' is not an object")
    return parameters


def json_response(document: object, status: int = 200) -> Response:
    """An answer in JSON."""
    return Response(orjson.dumps(document), status, media_type="application/json")
