"""Gives every request its id for the log, and back to the caller who sent it; knows no path but OpenAI's."""

from __future__ import annotations

from typing import Any

from tidemill.serving.http.openai.paths import OPENAI_PATHS
from tidemill.serving.request_id import CURRENT, HEADER, new_request_id, read_request_id

__all__ = ["RequestIds"]

_HEADER = HEADER.encode()


class RequestIds:
    """An ASGI application before another.

    OpenAI's clients expect an id with every answer; others get theirs back.
    """

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Hand over."""
        headers = scope.get("headers", ())
        shown = next((value.decode("latin-1") for name, value in headers if name == _HEADER), None)
        given = read_request_id(shown)
        name = given or new_request_id()
        CURRENT.set(name)
        if not given and scope.get("path") not in OPENAI_PATHS:
            await self._app(scope, receive, send)
            return

        async def marking(message: Any) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], (_HEADER, name.encode())]
            await send(message)

        await self._app(scope, receive, marking)
