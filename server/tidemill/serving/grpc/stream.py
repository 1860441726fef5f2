"""Inference over a stream: many requests on one call, answered in their order, errors among the answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, NamedTuple, TypeAlias

from tidemill.errors import InvalidArgument
from tidemill.protocol import rpc
from tidemill.serving.grpc.call import Context, read_message, told, write_message
from tidemill.serving.service import Service

__all__ = ["Stream"]

_METHOD = "ModelStreamInfer"
_FINAL = "triton_final_response"
_STATUS_ON_ERROR = ("triton_grpc_error", "true")
# How many requests of one stream are in the server at a time; the client's further ones wait in the connection.
_WINDOW = 64


class _Answer(NamedTuple):
    message: Any
    error: Exception | None = None


_Answers: TypeAlias = "asyncio.Queue[asyncio.Task[_Answer] | None]"


class Stream:
    """Runs the requests of each stream side by side, so that they may be batched, and answers them in order."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def handle(self, requests: AsyncIterator[bytes], context: Context) -> AsyncIterator[bytes]:
        """Answer one stream until the client has said all and has got all."""
        answers: _Answers = asyncio.Queue(_WINDOW)
        started: set[asyncio.Task[_Answer]] = set()
        reading = asyncio.create_task(self._start_all(requests, context, answers, started))
        status_on_error = _STATUS_ON_ERROR in tuple(context.invocation_metadata() or ())
        try:
            while coming := await answers.get():
                answer = await coming
                if answer.error and status_on_error:
                    await context.abort(*told(answer.error))
                yield bytes(answer.message.SerializeToString())
        finally:
            for task in (reading, *started):
                task.cancel()

    async def _start_all(
        self, requests: AsyncIterator[bytes], context: Context, answers: _Answers, started: set[asyncio.Task[_Answer]]
    ) -> None:
        async for data in requests:
            task = asyncio.create_task(self._answer(data, context))
            started.add(task)
            task.add_done_callback(started.discard)
            await answers.put(task)
        await answers.put(None)

    async def _answer(self, data: bytes, context: Context) -> _Answer:
        identifier = ""
        try:
            message = self._parsed(data)
            identifier = message.id
            return _Answer(write_message(_METHOD, infer_response=await self._infer(message, context)))
        except Exception as error:
            refusal = write_message(_METHOD, error_message=told(error)[1])
            refusal.infer_response.id = identifier
            return _Answer(refusal, error)

    async def _infer(self, message: Any, context: Context) -> Any:
        with self._service.track("stream", message.model_name, message.model_version):
            request = rpc.request_from_message(message, self._service.memory.reader())
            response = rpc.response_to_message(await self._service.infer(request, context.time_remaining()))
        # No model answers more than once yet, so that each answer is the last one to its request.
        response.parameters[_FINAL].bool_param = True
        return response

    def _parsed(self, data: bytes) -> Any:
        try:
            return read_message(_METHOD, data)
        except InvalidArgument as error:
            self._service.metrics.unknown.on_request("stream", error.code, 0.0)
            raise
