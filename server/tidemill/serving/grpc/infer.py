"""ModelInfer from bytes to bytes: alike requests of one turn together, all others one by one; knows no sockets."""

from __future__ import annotations

import asyncio
from typing import Any

from tidemill.errors import InvalidArgument
from tidemill.protocol import rpc
from tidemill.serving.burst import Burst
from tidemill.serving.grpc.call import Context, carrier_of, read_message
from tidemill.serving.grpc.kinds import Kinds
from tidemill.serving.service import Service

__all__ = ["Infer"]

_LINGER = 16
"""Turns of the loop: grpcio's thread hands over one event at a time, and needs the processor to do so."""


class Infer:
    """Answers ModelInfer for one server.

    Attributes:
        burst: Answers what arrives in one turn of the loop together.
        kinds: What of it can be.
    """

    def __init__(self, service: Service, linger: int = _LINGER) -> None:
        self.burst = Burst(service, linger)
        self.kinds = Kinds()
        self._service = service

    async def answer(self, data: bytes, context: Context) -> Any:
        """The response to a request, as a message or as its bytes.

        Raises:
            TidemillError: The request is wrong, or cannot be answered.
        """
        kind = None if self._service.admission.apart else self.kinds.find(data)
        if kind is not None:
            waiting = _Waiting()
            self.burst.add(kind, waiting, data, alone=kind.lonely)
            if body := waiting.body.result() if waiting.gone else await waiting.body:
                return body
        return await self.answer_alone(data, context)

    async def answer_alone(self, data: bytes, context: Context) -> Any:
        """The response message to one request; raises as `answer` does."""
        message = self._parsed(data)
        carrier = carrier_of(context) if self._service.admission.watchers else None
        with self._service.track("grpc", message.model_name, message.model_version, carrier) as admitted:
            request = rpc.request_from_message(message, self._service.memory.reader())
            admitted.request = request
            response = await self._service.infer(request, context.time_remaining())
            admitted.timing = response.timing
            return rpc.response_to_message(response)

    def _parsed(self, data: bytes) -> Any:
        try:
            return read_message("ModelInfer", data)
        except InvalidArgument as error:
            self._service.metrics.unknown.on_request("grpc", error.code, 0.0)
            raise


class _Waiting:
    """Who waits for an answer in a coroutine; implements `burst.Caller`."""

    def __init__(self) -> None:
        self.body: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    @property
    def gone(self) -> bool:
        return self.body.done()

    def answer(self, data: bytes) -> None:
        self.body.set_result(data)

    def take_alone(self, _message: bytes) -> None:
        self.body.set_result(b"")
