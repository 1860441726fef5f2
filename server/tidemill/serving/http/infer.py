"""The routes that run a model, straight from a request's bytes; knows models only through the service."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, TypeVar

from starlette.datastructures import Headers, QueryParams
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from tidemill.errors import Cancelled
from tidemill.protocol.types import InferResponse
from tidemill.serving.http.body import Buffer, choose_encoding, compress, decompress, read_body
from tidemill.serving.http.errors import error_response
from tidemill.serving.http.forms import Call, Form, Written
from tidemill.serving.service import Service

__all__ = ["COMPRESS_FROM", "JOIN_BELOW", "InferRoute", "server_timing", "while_connected"]

_T = TypeVar("_T")

COMPRESS_FROM = 4096
JOIN_BELOW = 64 << 10


class InferRoute:
    """A route that runs a model, as an ASGI application; its path has `model` and may have `version`."""

    def __init__(self, service: Service, choose_form: Callable[[Headers], Form]) -> None:
        """Set up a route.

        Args:
            service: What answers.
            choose_form: How a request is read and answered, by its headers.
        """
        self._service = service
        self._choose_form = choose_form

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        path: Mapping[str, str] = scope["path_params"]
        headers, query = Headers(scope=scope), QueryParams(scope["query_string"])
        call = Call(self._service, path["model"], path.get("version", ""), headers, query)
        try:
            response = await self._answer(call, receive)
        except Exception as error:
            response = error_response(error)
        await response(scope, receive, send)

    async def _answer(self, call: Call, receive: Receive) -> Response:
        started = time.monotonic()
        with self._service.track("rest", call.model, call.version, call.headers) as admitted:
            form = self._choose_form(call.headers)
            request = form.read(await self._body(call, receive), call)
            admitted.request = request
            answer = await while_connected(receive, self._service.infer(request))
            admitted.timing = answer.timing
            written = form.write(answer, request)
            timing = server_timing(answer, time.monotonic() - started)
            return await _encode(written, call.headers.get("accept-encoding", ""), timing)

    async def _body(self, call: Call, receive: Receive) -> Buffer:
        limit = self._service.config.max_request_bytes
        return await decompress(await read_body(receive, limit), call.headers.get("content-encoding", ""), limit)


class _BuffersResponse(Response):
    """A response of several buffers, sent one after the other instead of copied together."""

    def __init__(self, buffers: Sequence[Buffer], headers: dict[str, str]) -> None:
        super().__init__(b"", headers=headers)
        self._buffers = buffers

    async def __call__(self, _scope: Scope, _receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        for buffer in self._buffers:
            await send({"type": "http.response.body", "body": buffer, "more_body": True})
        await send({"type": "http.response.body"})


async def _encode(written: Written, accepted: str, timing: str) -> Response:
    buffers = written.buffers
    size = sum(map(len, buffers))
    headers = {**written.headers, "server-timing": timing}
    encoding = choose_encoding(accepted) if size >= COMPRESS_FROM else "identity"
    if encoding != "identity":
        headers |= {"content-encoding": encoding, "vary": "accept-encoding"}
        buffers = await compress(buffers, encoding)
        size = len(buffers[0])
    if size < JOIN_BELOW:
        return Response(b"".join(buffers), headers=headers)
    return _BuffersResponse(buffers, headers | {"content-length": str(size)})


def server_timing(answer: InferResponse, seconds: float) -> str:
    """Where the time went, in milliseconds, as browsers and proxies read it."""
    total = f"total;dur={seconds * 1e3:.3f}"
    if answer.timing is None:
        return total
    queue, run = answer.timing.queue_seconds * 1e3, answer.timing.run_seconds * 1e3
    return f"queue;dur={queue:.3f}, infer;dur={run:.3f}, {total}"


async def while_connected(receive: Receive, work: Coroutine[Any, Any, _T]) -> _T:
    """Do the work as long as the client is there to take the result; Cancelled if it leaves."""
    task = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(receive())
    try:
        await asyncio.wait((task, gone), return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise Cancelled("the client closed the connection before its answer was ready")
        return task.result()
    finally:
        task.cancel()
        gone.cancel()
