"""Inference over a stream: many requests on one call, answered in their order, errors among the answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Any, NamedTuple, TypeAlias

from tidemill.errors import InvalidArgument, ShuttingDown
from tidemill.protocol import rpc
from tidemill.protocol.types import InferResponse
from tidemill.repository.served_generator import ServedGenerator
from tidemill.serving.grpc.call import Context, carrier_of, read_message, told, write_message
from tidemill.serving.service import Service

__all__ = ["Stream"]

_METHOD = "ModelStreamInfer"
_FINAL = "triton_final_response"
_STATUS_ON_ERROR = ("triton_grpc_error", "true")
# How many answers to one request wait to be sent; those of a text are joined then.
_AHEAD = 4
# How many requests of one stream are in the server at a time; the client's further ones wait in the connection.
_WINDOW = 64


class _Answer(NamedTuple):
    message: Any
    error: Exception | None = None


_Pieces: TypeAlias = "asyncio.Queue[_Answer | None]"
_Answers: TypeAlias = "asyncio.Queue[_Pieces | None]"


class Stream:
    """Runs the requests of each stream side by side, so that they may be batched, and answers them in order."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def handle(self, requests: AsyncIterator[bytes], context: Context) -> AsyncIterator[bytes]:
        """Answer one stream until the client has said all and has got all, or the server comes to its end.

        Then what was taken is answered, and the call ends with UNAVAILABLE: a stream that is kept open for later
        requests would hold up the end for as long as its client likes.
        """
        answers: _Answers = asyncio.Queue(_WINDOW)
        started: set[asyncio.Task[None]] = set()
        reading = asyncio.create_task(self._start_all(requests, context, answers, started))
        ending = asyncio.create_task(self._end(reading, answers))
        status_on_error = _STATUS_ON_ERROR in tuple(context.invocation_metadata() or ())
        try:
            while pieces := await answers.get():
                while answer := await pieces.get():
                    if answer.error and status_on_error:
                        await context.abort(*told(answer.error))
                    yield bytes(answer.message.SerializeToString())
            if ending.done() and ending.result():
                await context.abort(*told(ShuttingDown("the server is shutting down")))
        finally:
            for task in (reading, ending, *started):
                task.cancel()

    async def _end(self, reading: asyncio.Task[None], answers: _Answers) -> bool:
        """Once the server refuses what is new, take nothing more from the client; False if it had said all."""
        while not self._service.refusing:
            await self._service.changes.wait()
        if reading.done():
            return False
        reading.cancel()
        await answers.put(None)
        return True

    async def _start_all(
        self, requests: AsyncIterator[bytes], context: Context, answers: _Answers, started: set[asyncio.Task[None]]
    ) -> None:
        async for data in requests:
            pieces: _Pieces = asyncio.Queue(_AHEAD)
            await answers.put(pieces)
            task = asyncio.create_task(self._answer(data, context, pieces))
            started.add(task)
            task.add_done_callback(started.discard)
        await answers.put(None)

    async def _answer(self, data: bytes, context: Context, pieces: _Pieces) -> None:
        identifier = ""
        try:
            message = self._parsed(data)
            identifier = message.id
            async with aclosing(self._infer(message, context)) as responses:
                async for response in responses:
                    await pieces.put(_Answer(write_message(_METHOD, infer_response=response)))
        except Exception as error:
            refusal = write_message(_METHOD, error_message=told(error)[1])
            refusal.infer_response.id = identifier
            await pieces.put(_Answer(refusal, error))
        await pieces.put(None)

    async def _infer(self, message: Any, context: Context) -> AsyncGenerator[Any, None]:
        carrier = carrier_of(context) if self._service.admission.watchers else None
        with self._service.track("stream", message.model_name, message.model_version, carrier) as admitted:
            request = rpc.request_from_message(message, self._service.memory.reader())
            admitted.request = request
            if isinstance(admitted.served, ServedGenerator):
                async with aclosing(admitted.served.stream(request)) as answers:
                    async for piece in answers:
                        yield _written(piece, final="finish_reason" in piece.parameters)
            else:
                response = await self._service.infer(request, context.time_remaining())
                admitted.timing = response.timing
                yield _written(response, final=True)

    def _parsed(self, data: bytes) -> Any:
        try:
            return read_message(_METHOD, data)
        except InvalidArgument as error:
            self._service.metrics.unknown.on_request("stream", error.code, 0.0)
            raise


def _written(response: InferResponse, *, final: bool) -> Any:
    message = rpc.response_to_message(response)
    message.parameters[_FINAL].bool_param = final
    return message
