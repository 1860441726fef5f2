"""The hot route: an inference request over REST, straight from its bytes; knows models only through the service."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from typing import Any, TypeVar

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from tidemill.errors import Cancelled
from tidemill.protocol import rest
from tidemill.protocol.raw import parse_raw_infer
from tidemill.protocol.types import InferRequest
from tidemill.serving.http.body import Buffer, choose_encoding, compress, decompress, read_body
from tidemill.serving.http.errors import error_response
from tidemill.serving.service import Service

__all__ = ["InferRoute"]

_T = TypeVar("_T")

_COMPRESS_FROM = 4096
_JOIN_BELOW = 64 << 10


class InferRoute:
    """`POST /v2/models/{model}[/versions/{version}]/infer` as an ASGI application.

    The body is taken as it comes, whatever its Content-Type: the protocol's clients send none, or a misleading one.
    """

    def __init__(self, service: Service) -> None:
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        path: Mapping[str, str] = scope["path_params"]
        try:
            response = await self._answer(path["model"], path.get("version", ""), Headers(scope=scope), receive)
        except Exception as error:
            response = error_response(error)
        await response(scope, receive, send)

    async def _answer(self, name: str, version: str, headers: Headers, receive: Receive) -> Response:
        with self._service.track("rest", name, version):
            request = await self._read(name, version, headers, receive)
            answer = await _while_connected(receive, self._service.infer(request))
            json_length, buffers = rest.format_infer_response(answer, request)
            return await _encode(json_length, buffers, headers.get("accept-encoding", ""))

    async def _read(self, name: str, version: str, headers: Headers, receive: Receive) -> InferRequest:
        limit = self._service.config.max_request_bytes
        body = await decompress(await read_body(receive, limit), headers.get("content-encoding", ""), limit)
        json_length = rest.parse_header_length(headers.get(rest.HEADER_LENGTH))
        if json_length == 0:
            return parse_raw_infer(body, self._service.model_metadata(name, version), model_version=version)
        return rest.parse_infer(body, json_length, model_name=name, model_version=version)


class _BuffersResponse(Response):
    """A response of several buffers, sent one after the other instead of copied together."""

    def __init__(self, buffers: list[Buffer], headers: dict[str, str]) -> None:
        super().__init__(b"", headers=headers)
        self._buffers = buffers

    async def __call__(self, _scope: Scope, _receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        for buffer in self._buffers:
            await send({"type": "http.response.body", "body": buffer, "more_body": True})
        await send({"type": "http.response.body"})


async def _encode(json_length: int | None, buffers: list[Any], accepted: str) -> Response:
    size = sum(map(len, buffers))
    headers = {"content-type": "application/json"}
    if json_length is not None:
        headers = {"content-type": "application/octet-stream", rest.HEADER_LENGTH: str(json_length)}
    encoding = choose_encoding(accepted) if size >= _COMPRESS_FROM else "identity"
    if encoding != "identity":
        headers |= {"content-encoding": encoding, "vary": "accept-encoding"}
        buffers = await compress(buffers, encoding)
        size = len(buffers[0])
    if size < _JOIN_BELOW:
        return Response(b"".join(buffers), headers=headers)
    return _BuffersResponse(buffers, headers | {"content-length": str(size)})


async def _while_connected(receive: Receive, work: Coroutine[Any, Any, _T]) -> _T:
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
