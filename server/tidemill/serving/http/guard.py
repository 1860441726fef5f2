"""The door of the REST face: which group of the API a path belongs to, and whether its caller has a key for that."""

from __future__ import annotations

from typing import Any

from tidemill.errors import NotFound, Unauthenticated
from tidemill.serving.http.errors import error_response
from tidemill.serving.http.openai.failure import error_response as openai_error
from tidemill.serving.http.openai.paths import OPENAI_PATHS
from tidemill.serving.http.shown_key import shown_key
from tidemill.serving.keys import Group, KeyRing
from tidemill.serving.metrics import Metrics

__all__ = ["Guard", "group_of"]

_INFERENCE = ("/infer", "/generate", "/generate_stream", ":predict", *OPENAI_PATHS)
_STATISTICS = ("/metrics", "/stats", "/v2/requests")
_SETTINGS = ("/trace/setting", "/v2/logging")


class Guard:
    """An ASGI application before another; lets through who may."""

    def __init__(self, app: Any, ring: KeyRing, metrics: Metrics) -> None:
        self._app = app
        self._ring = ring
        self._metrics = metrics

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer 401 or 404, or hand over."""
        path = scope["path"] if scope["type"] == "http" else ""
        group = group_of(path)
        try:
            # A router may take a path for the same without its last newline, and this would not.
            if not path.isprintable():
                raise NotFound("there is no path with control characters here")
            if group:
                self._ring.keys.check(group, shown_key(scope["headers"]))
        except (NotFound, Unauthenticated) as error:
            self._metrics.unknown.on_request("rest", error.code, 0.0)
            response = (openai_error if path in OPENAI_PATHS else error_response)(error)
            if isinstance(error, Unauthenticated):
                response.headers["www-authenticate"] = "Bearer"
            # The body was not read, and its bytes are no next request.
            response.headers["connection"] = "close"
            await response(scope, receive, send)
        else:
            await self._app(scope, receive, send)


def group_of(path: str) -> Group | None:
    """The group of a path; None for the console's own files, which tell nothing."""
    if path.endswith(_INFERENCE) or "sharedmemory" in path:
        return "inference"
    if path.endswith(_STATISTICS):
        return "statistics"
    if path.endswith(_SETTINGS):
        return "settings"
    if path.startswith("/v2/repository") and not path.endswith("/index"):
        return "repository"
    if path.startswith(("/v2/health", "/v1/models/")) or path.endswith("/ready"):
        return "health"
    return "metadata" if path.startswith(("/v1", "/v2")) else None
