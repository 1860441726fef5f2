"""Texts as they are made, one server-sent event a piece; of a model that answers once there is one event."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing

import orjson
from starlette.datastructures import Headers, QueryParams
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from tidemill.errors import Cancelled, TidemillError
from tidemill.protocol.generate import format_generated
from tidemill.protocol.status import status_of
from tidemill.protocol.types import InferRequest
from tidemill.repository.served_generator import ServedGenerator
from tidemill.serving.http.errors import error_response
from tidemill.serving.http.events import send_events
from tidemill.serving.http.forms import Call, GenerateStream
from tidemill.serving.http.infer import InferRoute
from tidemill.serving.service import Service

__all__ = ["GenerateStreamRoute"]


class GenerateStreamRoute(InferRoute):
    """POST .../generate_stream."""

    def __init__(self, service: Service) -> None:
        """Set up the route."""
        super().__init__(service, lambda _headers: GenerateStream())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        path: Mapping[str, str] = scope["path_params"]
        name, version = path["model"], path.get("version", "")
        if not self._service.makes_texts(name, version):
            await super().__call__(scope, receive, send)
            return
        call = Call(self._service, name, version, Headers(scope=scope), QueryParams(scope["query_string"]))
        refusal: Response | None = None
        try:
            with self._service.track("rest", name, version, call.headers) as admitted:
                request = GenerateStream().read(await self._body(call, receive), call)
                admitted.request = request
                assert isinstance(admitted.served, ServedGenerator)
                await send_events(_events(admitted.served, request), receive, send, done=None)
        except Cancelled:
            return
        except Exception as error:
            refusal = error_response(error)
        if refusal:
            await refusal(scope, receive, send)


async def _events(served: ServedGenerator, request: InferRequest) -> AsyncGenerator[bytes, None]:
    begun = False
    try:
        async with aclosing(served.stream(request)) as answers:
            async for response in answers:
                yield format_generated(response)
                begun = True
    except TidemillError as error:
        if not begun:
            raise
        # Once a stream has begun, this is the only way to tell.
        yield orjson.dumps({"error": str(error), "status": status_of(error).http})
