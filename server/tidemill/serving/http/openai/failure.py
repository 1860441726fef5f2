"""Errors as OpenAI's clients read them: a status, and an object with message, type, param and code."""

from __future__ import annotations

import logging
from typing import Any

import orjson
from pydantic import ValidationError
from starlette.responses import Response

from tidemill.errors import InvalidArgument, NotFound, PromptTooLong, QueueFull, TidemillError
from tidemill.protocol.status import status_of
from tidemill.serving.request_id import tell_unexpected

__all__ = ["Refused", "error_body", "error_response", "explain"]

_LOG = logging.getLogger("tidemill.http")
_TYPES = {401: "authentication_error", 404: "not_found_error", 429: "rate_limit_error"}


class Refused(InvalidArgument):
    """A field that is wrong; `param` says which."""

    def __init__(self, param: str, text: str) -> None:
        super().__init__(f"{param}: {text}")
        self.param = param


def error_body(error: BaseException) -> tuple[int, dict[str, Any]]:
    """The status and the object that answer an error; what is no TidemillError is logged and told to nobody."""
    if not isinstance(error, TidemillError):
        return 500, _object(500, tell_unexpected(_LOG, error), None, "internal")
    # Clients wait and try again by themselves after 429, as they do after 503.
    status = 429 if isinstance(error, QueueFull) else status_of(error).http
    # Those that the framework would answer 422 are 400 in this API.
    status = 400 if status == 422 else status
    return status, _object(status, str(error), getattr(error, "param", None), _code(error))


def error_response(error: BaseException) -> Response:
    """The answer to a request that failed."""
    status, body = error_body(error)
    headers = {"retry-after": "1"} if status in (429, 503) else {}
    if status == 401:
        headers["www-authenticate"] = "Bearer"
    return Response(orjson.dumps(body), status, headers, "application/json")


def explain(error: ValidationError) -> Refused:
    """The first fault of a body."""
    fault = error.errors()[0]
    names = [str(step) for step in fault["loc"] if not _is_form(step)]
    given = repr(fault.get("input"))
    shown = given if len(given) <= 60 else given[:57] + "..."
    missing = fault["type"] == "missing"
    return Refused(".".join(names) or "body", fault["msg"] + ("" if missing else f", given was {shown}"))


def _is_form(step: object) -> bool:
    """Whether a step of a path is pydantic's name for one of the forms that a field may have."""
    return isinstance(step, str) and (step in ("str", "constrained-int") or step.startswith(("list[", "constrained-")))


def _object(status: int, message: str, param: str | None, code: str | None) -> dict[str, Any]:
    kind = _TYPES.get(status, "invalid_request_error" if status < 500 else "server_error")
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def _code(error: TidemillError) -> str:
    if isinstance(error, PromptTooLong):
        return "context_length_exceeded"
    return "model_not_found" if isinstance(error, NotFound) else error.code
