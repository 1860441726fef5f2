"""The id by which a request is found in the logs: its caller's, or one that is made; knows no wire."""

from __future__ import annotations

import logging
import os
import re
from contextvars import ContextVar

__all__ = ["CURRENT", "HEADER", "new_request_id", "read_request_id", "tell_unexpected"]

HEADER = "x-request-id"
"""The header over REST, and the name in gRPC's metadata."""
CURRENT: ContextVar[str] = ContextVar("tidemill_request_id", default="")
"""The id of the request that a task answers; every line of the log has it."""

_USABLE = re.compile(r"[\x21-\x7e]{1,128}")


def read_request_id(shown: str | None) -> str:
    """The id that a caller shows; "" for none, or for one that is no single word of up to 128 ASCII characters."""
    return shown if shown and _USABLE.fullmatch(shown) else ""


def new_request_id() -> str:
    """An id that no other request has."""
    return os.urandom(8).hex()


def tell_unexpected(log: logging.Logger, error: BaseException, request_id: str = "") -> str:
    """Log an error that nobody expected, and give the text for the caller, who is told nothing but where to find it.

    Args:
        log: Where everything about it goes.
        error: What was raised.
        request_id: The request's, where no task stands for it; "" for the current one's, or a new one.
    """
    name = request_id or CURRENT.get() or new_request_id()
    token = CURRENT.set(name)
    try:
        log.error("a request failed unexpectedly", exc_info=error)
    finally:
        CURRENT.reset(token)
    return f"internal error; the server's log has the details under request {name}"
