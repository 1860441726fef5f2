"""A unary gRPC call over HTTP/2 without sockets: says what to send and where to receive (RFC 9113); knows no messages.

A connection carries one call at a time, as in HTTP/1.1: whoever calls while it is busy takes another. So no thread has
to read for the others, and the drivers of HTTP/1.1 serve here too. The server is asked for a header table of size 0
(RFC 7541, 4.2): equal blocks of headers are then equal bytes, and are decoded once.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Generator, Mapping
from typing import Any

from tidemill.client.attempts import NotRun
from tidemill.client.call import Call, Part
from tidemill.client.grpc_answer import Answer
from tidemill.client.header_blocks import HeaderBlocks
from tidemill.client.link import Steps
from tidemill.client.outgoing import MAX_WINDOW, Outgoing
from tidemill.errors import InferenceFailed, Unavailable
from tidemill.protocol.http2 import (
    ACK,
    END_HEADERS,
    END_STREAM,
    PADDED,
    PREFACE,
    PRIORITY,
    ConnectionFault,
    Fault,
    Frame,
    Setting,
    frame,
    literal,
    settings,
    unpadded,
)

__all__ = ["Http2Link"]

_MAX_FRAME = 1 << 20
_DEFAULT_WINDOW = 65_535
_RENEW_AFTER = 1 << 30
_READ_BYTES = 1 << 16
_LONGEST_HEADERS = 1 << 16
_HEAD = struct.Struct(">IBI")
_OPENING = (
    PREFACE
    + settings(
        {
            Setting.HEADER_TABLE_SIZE: 0,
            Setting.ENABLE_PUSH: 0,
            Setting.INITIAL_WINDOW_SIZE: MAX_WINDOW,
            Setting.MAX_FRAME_SIZE: _MAX_FRAME,
        }
    )
    + frame(Frame.WINDOW_UPDATE, 0, 0, struct.pack(">I", MAX_WINDOW - _DEFAULT_WINDOW))
)


class Http2Link:
    """One connection to a gRPC server; implements `Link`.

    Args:
        heads: The header block of a call by the name of its method.
        clock: Seconds that only grow.
    """

    def __init__(self, heads: Mapping[str, bytes], clock: Callable[[], float] = time.monotonic) -> None:
        self.reusable = True
        self._heads = heads
        self._clock = clock
        self._blocks = HeaderBlocks()
        self._out = Outgoing()
        self._buffer = bytearray()
        self._scratch = memoryview(bytearray(_READ_BYTES))
        self._replies = bytearray(_OPENING)
        self._greeted = False
        self._stream = -1
        self._data_left = 0
        self._data_ends = False
        self._headers: tuple[int, bytearray] | None = None
        self._received = self._stream_received = 0
        self._answer = Answer(None, clock)

    def steps(self, call: Call[Any], seconds: float | None) -> Steps:
        """Send a call and read its answer: the bytes of one message."""
        self.reusable = False
        self._stream += 2
        self._stream_received = 0
        self._answer = answer = Answer(seconds, self._clock)
        head = self._heads[call.target] + _timeout(seconds)
        self._replies += frame(Frame.HEADERS, END_HEADERS, self._stream, head)
        self._out.start(self._stream, call.parts)
        while not answer.ended:
            if self._replies or self._out.can_send:
                yield from self._send()
            else:
                yield from self._receive()
        # What was not sent is not wanted; the stream ends only with the connection.
        self.reusable = self._out.is_done and answer.keeps and self._stream < MAX_WINDOW - 2
        return answer.result()

    def absorb(self, data: bytes) -> bool:
        """Take in pings, settings and goodbyes that came between two calls."""
        if not data:
            return False
        self._buffer += data
        try:
            self._take_frames()
        except InferenceFailed:
            return False
        return self._answer.keeps

    def _send(self) -> Generator[list[Part], int, None]:
        data = bytes(self._replies) + self._out.take()
        self._replies.clear()
        try:
            yield [data]
        except ConnectionError:
            # A server that refuses a request closes while it is still sent; its answer may lie there to be read.
            self._out.give_up()
            self._answer.keeps = False

    def _receive(self) -> Generator[memoryview, int, None]:
        direct = self._answer.room(self._data_left) if self._data_left and not self._buffer else None
        view = self._scratch if direct is None else direct
        count = yield view
        if not count:
            raise Unavailable("the server closed the connection without an answer")
        if direct is None:
            self._buffer += self._scratch[:count]
            self._take_frames()
        else:
            self._answer.filled(count)
            self._took_data(count)

    def _take_frames(self) -> None:
        if not self._greeted:
            self._greet()
        buffer, place = self._buffer, 0
        try:
            while place < len(buffer):
                following = self._take_data_part(place) if self._data_left else self._take_frame(place)
                if following == place:
                    break
                place = following
        except ConnectionFault as fault:
            raise InferenceFailed(f"the server does not follow HTTP/2: {fault}") from fault
        del buffer[:place]

    def _greet(self) -> None:
        if self._buffer.startswith(b"HTTP/"):
            raise InferenceFailed(
                "the server speaks HTTP/1.1 there and no gRPC; give its gRPC port, or an http:// address"
            )
        self._greeted = True

    def _take_data_part(self, place: int) -> int:
        end = min(place + self._data_left, len(self._buffer))
        self._answer.data(memoryview(self._buffer)[place:end])
        self._took_data(end - place)
        return end

    def _took_data(self, count: int) -> None:
        self._data_left -= count
        if not self._data_left and self._data_ends:
            self._answer.end()

    def _take_frame(self, place: int) -> int:
        """Where the frame that begins there ends; the same place if it is not whole yet."""
        buffer = self._buffer
        content = place + 9
        if content > len(buffer):
            return place
        first, flags, number = _HEAD.unpack_from(buffer, place)
        size: int = first >> 8
        kind, stream = first & 0xFF, number & MAX_WINDOW
        if size > _MAX_FRAME:
            raise ConnectionFault(Fault.FRAME_SIZE_ERROR, f"a frame of {size} bytes is over {_MAX_FRAME}")
        if kind == Frame.DATA and not flags & PADDED:
            self._begin_data(stream, flags, size)
            return content
        if content + size > len(buffer):
            return place
        if taker := _TAKERS.get(kind):
            taker(self, flags, stream, bytes(buffer[content : content + size]))
        return content + size

    def _begin_data(self, stream: int, flags: int, size: int) -> None:
        if stream != self._stream:
            raise ConnectionFault(Fault.PROTOCOL_ERROR, f"data of call {stream}, which was not made or has ended")
        self._renew(size)
        self._data_left, self._data_ends = size, bool(flags & END_STREAM)
        self._took_data(0)

    def _take_padded(self, flags: int, stream: int, payload: bytes) -> None:
        self._begin_data(stream, 0, 0)
        self._renew(len(payload))
        self._answer.data(memoryview(unpadded(payload, flags)))
        self._data_ends = bool(flags & END_STREAM)
        self._took_data(0)

    def _renew(self, size: int) -> None:
        """Give the windows back long before they are used up."""
        self._received += size
        self._stream_received += size
        if self._received > _RENEW_AFTER:
            self._replies += frame(Frame.WINDOW_UPDATE, 0, 0, struct.pack(">I", self._received))
            self._received = 0
        if self._stream_received > _RENEW_AFTER:
            self._replies += frame(Frame.WINDOW_UPDATE, 0, self._stream, struct.pack(">I", self._stream_received))
            self._stream_received = 0

    def _take_headers(self, flags: int, stream: int, payload: bytes) -> None:
        block = unpadded(payload, flags)
        if flags & PRIORITY:
            block = block[5:]
        if flags & END_HEADERS:
            self._take_block(flags, stream, block)
        else:
            self._headers = (flags, bytearray(block))

    def _take_continuation(self, flags: int, stream: int, payload: bytes) -> None:
        if self._headers is None:
            raise ConnectionFault(Fault.PROTOCOL_ERROR, "a continuation of nothing")
        first, block = self._headers
        block += payload
        if len(block) > _LONGEST_HEADERS:
            raise ConnectionFault(Fault.ENHANCE_YOUR_CALM, f"headers are over {_LONGEST_HEADERS} bytes")
        if flags & END_HEADERS:
            self._headers = None
            self._take_block(first, stream, bytes(block))

    def _take_block(self, flags: int, stream: int, block: bytes) -> None:
        fields = self._blocks.decode(block)
        if stream == self._stream:
            self._answer.headers(fields)
            if flags & END_STREAM:
                self._answer.end()

    def _take_reset(self, _flags: int, stream: int, payload: bytes) -> None:
        if stream == self._stream:
            self._out.give_up()
            self._answer.reset(int.from_bytes(payload))

    def _take_settings(self, flags: int, _stream: int, payload: bytes) -> None:
        if flags & ACK:
            return
        if len(payload) % 6:
            raise ConnectionFault(Fault.FRAME_SIZE_ERROR, "settings have 6 bytes each")
        for key, value in struct.iter_unpack(">HI", payload):
            self._out.apply(key, value)
        self._replies += frame(Frame.SETTINGS, ACK, 0)

    def _take_ping(self, flags: int, _stream: int, payload: bytes) -> None:
        if not flags & ACK:
            self._replies += frame(Frame.PING, ACK, 0, payload)

    def _take_goaway(self, _flags: int, _stream: int, payload: bytes) -> None:
        self._answer.keeps = False
        if int.from_bytes(payload[:4]) & MAX_WINDOW < self._stream and not self._answer.ended:
            raise NotRun(f"the server takes no more calls on this connection {payload[8:200].decode(errors='replace')}")

    def _take_window(self, _flags: int, stream: int, payload: bytes) -> None:
        self._out.widen(stream, int.from_bytes(payload) & MAX_WINDOW)

    def _take_push(self, _flags: int, _stream: int, _payload: bytes) -> None:
        raise ConnectionFault(Fault.PROTOCOL_ERROR, "it pushes, though it was told not to")


_TAKERS: dict[int, Callable[[Http2Link, int, int, bytes], None]] = {
    Frame.DATA: Http2Link._take_padded,
    Frame.HEADERS: Http2Link._take_headers,
    Frame.RST_STREAM: Http2Link._take_reset,
    Frame.SETTINGS: Http2Link._take_settings,
    Frame.PUSH_PROMISE: Http2Link._take_push,
    Frame.PING: Http2Link._take_ping,
    Frame.GOAWAY: Http2Link._take_goaway,
    Frame.WINDOW_UPDATE: Http2Link._take_window,
    Frame.CONTINUATION: Http2Link._take_continuation,
}


def _timeout(seconds: float | None) -> bytes:
    """How long the caller waits, in at most 8 digits, as gRPC's protocol over HTTP/2 has it."""
    if seconds is None:
        return b""
    micros = max(1, int(seconds * 1e6))
    text = f"{micros}u" if micros < 10**8 else f"{min(int(seconds), 10**8 - 1)}S"
    return literal(b"grpc-timeout", text.encode())
