"""A call that the fast lane hands to grpcio, message by message and in both directions; knows no method."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import grpc

from tidemill.protocol.http2 import END_HEADERS, END_STREAM, Frame, frame
from tidemill.serving.grpc.fast.call import fail
from tidemill.serving.grpc.fast.head import RESPONSE_HEADERS, Head, metadata_block, trailers

if TYPE_CHECKING:
    from tidemill.serving.grpc.fast.connection import Connection

__all__ = ["ForwardedCall"]

_PREFIX = struct.Struct(">BI")
_AHEAD = 16
"""Messages that may wait for grpcio until the client has to."""


class ForwardedCall:
    """Implements `connection.Stream`."""

    def __init__(self, place: tuple[Connection, int], head: Head, channel: Any, limit: int) -> None:
        """Begin the call.

        Args:
            place: The connection and the stream on it.
            head: What the call says before its messages.
            channel: Where to.
            limit: The most bytes that a message may have.
        """
        self._place = self._connection, self._stream = place
        self._head = head
        self._limit = limit
        self._buffer = bytearray()
        self._messages: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._owed = 0
        self._ended = self._started = False
        self._task = asyncio.get_running_loop().create_task(self._run(channel))

    def receive(self, data: bytes, *, ended: bool) -> None:
        """Take a part of the client's messages."""
        self._buffer += data
        self._ended = ended
        while len(self._buffer) >= _PREFIX.size:
            packed, size = _PREFIX.unpack_from(self._buffer)
            if packed or size > self._limit:
                self._refuse(packed)
                return
            if len(self._buffer) < _PREFIX.size + size:
                break
            self._messages.put_nowait(bytes(self._buffer[_PREFIX.size : _PREFIX.size + size]))
            del self._buffer[: _PREFIX.size + size]
        if ended:
            self._messages.put_nowait(None)
            return
        self._owed += len(data)
        self._pay_back()

    def cancel(self) -> None:
        """End the call: the client is gone."""
        self._task.cancel()

    def _pay_back(self) -> None:
        if self._owed and self._messages.qsize() < _AHEAD:
            self._connection.consumed(self._stream, self._owed)
            self._owed = 0

    def _refuse(self, packed: int) -> None:
        self._task.cancel()
        if packed:
            code, text = grpc.StatusCode.UNIMPLEMENTED, "compressed messages are not taken; send them as they are"
        else:
            code, text = grpc.StatusCode.RESOURCE_EXHAUSTED, f"a message is over the limit of {self._limit} bytes"
        fail(self._place, code, text, ended=self._ended)

    async def _requests(self) -> AsyncIterator[bytes]:
        while (message := await self._messages.get()) is not None:
            self._pay_back()
            yield message

    async def _run(self, channel: Any) -> None:
        method = channel.stream_stream(self._head.path)
        call = method(self._requests(), timeout=self._head.timeout, metadata=self._head.metadata)
        try:
            async for message in call:
                await self._start(call)
                await self._send(_PREFIX.pack(0, len(message)) + message)
            code, text = await call.code(), await call.details()
        except grpc.aio.AioRpcError as error:
            code, text = error.code(), error.details() or ""
        except asyncio.CancelledError:
            call.cancel()
            raise
        await self._end(code, text or "", tuple(await call.trailing_metadata() or ()))

    async def _start(self, call: Any) -> None:
        if not self._started:
            self._started = True
            own = metadata_block(tuple(await call.initial_metadata() or ()))
            self._connection.send(frame(Frame.HEADERS, END_HEADERS, self._stream, RESPONSE_HEADERS + own))

    async def _send(self, data: bytes) -> None:
        windows = self._connection.windows
        if not windows.send(self._stream, data):
            drained = asyncio.Event()
            windows.on_drained[self._stream] = drained.set
            await drained.wait()

    async def _end(self, code: Any, text: str, metadata: Any) -> None:
        block = trailers(code.value[0], text, metadata)
        block = block if self._started else RESPONSE_HEADERS + block
        self._connection.send(frame(Frame.HEADERS, END_HEADERS | END_STREAM, self._stream, block))
        self._connection.finish(self._stream)
