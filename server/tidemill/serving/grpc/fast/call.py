"""One ModelInfer call of the fast lane, from its bytes to those of its answer; knows frames only as what it sends."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING

import grpc

from tidemill.errors import InvalidArgument, TidemillError, TooLarge, Unsupported
from tidemill.protocol.http2 import END_HEADERS, END_STREAM, Fault, Frame, frame
from tidemill.serving.grpc.call import told
from tidemill.serving.grpc.fast.head import OK_TRAILERS, RESPONSE_HEADERS, Head, refusal, trailers
from tidemill.serving.grpc.infer import Infer

if TYPE_CHECKING:
    from tidemill.serving.grpc.fast.connection import Connection

__all__ = ["InferCall", "Refused", "fail", "unpacked"]

_PREFIX = struct.Struct(">BI")
_FRAME = struct.Struct(">I")
_ENDS = END_HEADERS | END_STREAM
_PAY_BACK = 256 << 10


class InferCall:
    """Implements `connection.Stream` and `burst.Caller`."""

    def __init__(
        self, place: tuple[Connection, int], head: Head, infer: Infer, check: Callable[[Head], None], limit: int
    ) -> None:
        """Wait for the message.

        Args:
            place: The connection and the stream on it.
            head: What the call says before its message.
            infer: Answers it.
            check: Raises if the caller may not ask.
            limit: The most bytes that a message may have.
        """
        self._connection, self._stream = place
        self._head = head
        self._infer = infer
        self._check = check
        self._limit = limit
        self._loop = asyncio.get_running_loop()
        self._ends = None if head.timeout is None else self._loop.time() + head.timeout
        self._body: bytes | bytearray = b""
        self._owed = 0
        self._task: asyncio.Task[None] | None = None
        self.gone = False

    def time_remaining(self) -> float | None:
        """Seconds until nobody waits for the answer any more; None if the caller set no limit."""
        return None if self._ends is None else self._ends - self._loop.time()

    def invocation_metadata(self) -> tuple[tuple[str, str | bytes], ...]:
        """What the caller sent beside the message."""
        return self._head.metadata

    # What the connection calls

    def receive(self, data: bytes, *, ended: bool) -> None:
        """Take a part of the message."""
        if self.gone:
            return
        self._body = data if not self._body else bytearray(self._body) + data
        if len(self._body) > self._limit + _PREFIX.size:
            self._refuse(TooLarge(f"the message is over the limit of {self._limit} bytes (max_request_bytes)"), ended)
        elif ended:
            self._run()
        else:
            self._owed += len(data)
            if self._owed > _PAY_BACK:
                self._connection.consumed(self._stream, self._owed)
                self._owed = 0

    def cancel(self) -> None:
        """End the work: the caller is gone."""
        self.gone = True
        if self._task:
            self._task.cancel()

    # What a burst calls

    def answer(self, data: bytes) -> None:
        """Send the response message and the good end."""
        stream, size, connection = _FRAME.pack(self._stream), len(data) + _PREFIX.size, self._connection
        self.gone = True
        if connection.windows.fits(self._stream, size):
            head = _FRAME.pack(size << 8)
            prefix = _PREFIX.pack(0, len(data))
            connection.send(
                b"".join(
                    (
                        _OK_HEAD,
                        stream,
                        RESPONSE_HEADERS,
                        head,
                        b"\0",
                        stream,
                        prefix,
                        data,
                        _OK_END,
                        stream,
                        OK_TRAILERS,
                    )
                )
            )
            connection.finish(self._stream)
            return
        connection.send(frame(Frame.HEADERS, END_HEADERS, self._stream, RESPONSE_HEADERS))
        if connection.windows.send(self._stream, _PREFIX.pack(0, len(data)) + data, OK_TRAILERS):
            connection.finish(self._stream)
        else:
            connection.windows.on_drained[self._stream] = lambda: connection.finish(self._stream)

    def take_alone(self, message: bytes) -> None:
        """Have the request answered by itself."""
        self._task = self._loop.create_task(self._answer_alone(message))

    def _run(self) -> None:
        try:
            self._check(self._head)
            message = unpacked(bytes(self._body), self._head.encoding)
        except TidemillError as error:
            self._refuse(error, True)
            return
        self._body = b""
        kind = self._infer.kinds.find(message)
        if kind is None:
            self.take_alone(message)
        else:
            self._infer.burst.add(kind, self, message)

    async def _answer_alone(self, message: bytes) -> None:
        try:
            response = await self._infer.answer_alone(message, self)
            body = response.SerializeToString()
        except Exception as error:
            if not self.gone:
                self._refuse(error, True)
        else:
            if not self.gone:
                self.answer(body)

    def _refuse(self, error: Exception, ended: bool) -> None:
        self.gone = True
        code, text = told(error)
        fail((self._connection, self._stream), code, text, ended=ended)


class Refused:
    """A request that is no gRPC call; implements `connection.Stream`."""

    def __init__(self, place: tuple[Connection, int], status: int) -> None:
        """Answer with an HTTP status."""
        self._place = place
        connection, stream = place
        connection.send(frame(Frame.HEADERS, _ENDS, stream, refusal(status)))
        asyncio.get_running_loop().call_soon(connection.reset, stream, Fault.NO_ERROR)

    def receive(self, data: bytes, *, ended: bool) -> None:
        """Nothing is read."""

    def cancel(self) -> None:
        """Nothing is under way."""


def fail(place: tuple[Connection, int], code: grpc.StatusCode, text: str, *, ended: bool) -> None:
    """End a call that was answered with nothing yet; the rest of an unfinished request is not wanted."""
    connection, stream = place
    connection.send(frame(Frame.HEADERS, _ENDS, stream, RESPONSE_HEADERS + trailers(code.value[0], text)))
    if ended:
        connection.finish(stream)
    else:
        connection.reset(stream, Fault.NO_ERROR)


def unpacked(body: bytes, encoding: str) -> bytes:
    """The one message of a call.

    Raises:
        Unsupported: It is compressed.
        InvalidArgument: There is none, or more than one.
    """
    if len(body) < _PREFIX.size:
        raise InvalidArgument("the call ended without a request message")
    packed, size = _PREFIX.unpack_from(body)
    if packed:
        raise Unsupported(f"compressed messages ({encoding!r}) are not taken; send them as they are")
    if len(body) != size + _PREFIX.size:
        raise InvalidArgument(f"the call sent {len(body) - _PREFIX.size} bytes, its one message has {size}")
    return body[_PREFIX.size :]


_OK_HEAD = _FRAME.pack(len(RESPONSE_HEADERS) << 8 | Frame.HEADERS) + bytes((END_HEADERS,))
_OK_END = _FRAME.pack(len(OK_TRAILERS) << 8 | Frame.HEADERS) + bytes((_ENDS,))
