"""One gRPC call at a time over an HTTP/2 connection of its own (RFC 9113); cheap, so that the load is not slow.

It asks the server for a header table of size 0 (RFC 7541, 4.2): a block of headers then means the same each time, and
those of success are looked up by their bytes. It keeps no answer but the text of errors.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Mapping
from typing import cast
from urllib.parse import unquote

from tidemill.bench.http1 import Done
from tidemill.errors import InferenceFailed, Unavailable
from tidemill.protocol.http2 import (
    ACK,
    END_HEADERS,
    END_STREAM,
    PADDED,
    PREFACE,
    PRIORITY,
    Frame,
    Setting,
    frame,
    literal,
    settings,
)
from tidemill.protocol.status import GRPC_CODES, error_from_grpc

__all__ = ["Http2Connection", "header_block"]

_HEAD = struct.Struct(">IBI")
_LARGEST_WINDOW = 2**31 - 1
_DEFAULT_WINDOW = 65_535
_RENEW_AFTER = 2**30


def header_block(path: str, authority: str, *, tls: bool, more: Mapping[str, str]) -> bytes:
    """The headers of a unary gRPC call, each written out: RFC 7541, 6.2.2."""
    headers = {":path": path, ":authority": authority, "content-type": "application/grpc", "te": "trailers", **more}
    # 0x83 is ":method: POST", 0x86 and 0x87 are ":scheme: http" and "https" of the static table.
    block = bytes([0x83, 0x87 if tls else 0x86])
    for name, value in headers.items():
        block += literal(name.lower().encode(), value.encode())
    return block


class Http2Connection(asyncio.Protocol):
    """One call at a time.

    Attributes:
        usable: Whether the connection still stands.
    """

    def __init__(self, headers: bytes) -> None:
        self.usable = True
        self._headers = headers
        self._transport: asyncio.Transport | None = None
        self._done: Done | None = None
        self._stream = -1
        self._buffer = bytearray()
        self._block = b""
        self._unsent = memoryview(b"")
        self._window = self._stream_window = self._initial_window = _DEFAULT_WINDOW
        self._max_frame = 16_384
        self._received = 0
        self._known: dict[bytes, Exception | None] = {}

    def send(self, request: bytes, done: Done) -> None:
        """Start one call with a length-prefixed message; `done` is called when its answer is whole."""
        self._done = done
        if self._transport is None or not self.usable:
            self._finish(Unavailable("the connection is closed"))
            return
        self._stream += 2
        self._stream_window, self._unsent = self._initial_window, memoryview(request)
        head = frame(Frame.HEADERS, END_HEADERS, self._stream, self._headers)
        self._transport.write(head + self._next_data())

    def close(self) -> None:
        """Close the connection; a call in flight fails."""
        if self._transport:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Part of asyncio.Protocol."""
        self._transport = cast(asyncio.Transport, transport)
        opening = settings({Setting.HEADER_TABLE_SIZE: 0, Setting.INITIAL_WINDOW_SIZE: _LARGEST_WINDOW})
        self._transport.write(PREFACE + opening + _window_update(_LARGEST_WINDOW - _DEFAULT_WINDOW))

    def connection_lost(self, exc: Exception | None) -> None:
        """Part of asyncio.Protocol."""
        self.usable = False
        self._finish(Unavailable(f"the server closed the connection{f': {exc}' if exc else ''}"))

    def data_received(self, data: bytes) -> None:
        """Part of asyncio.Protocol."""
        buffer = self._buffer
        buffer += data
        start = 0
        while len(buffer) - start >= _HEAD.size:
            first, flags, stream = _HEAD.unpack_from(buffer, start)
            end = start + _HEAD.size + (first >> 8)
            if end > len(buffer):
                break
            self._take(first & 0xFF, flags, stream & _LARGEST_WINDOW, bytes(buffer[start + _HEAD.size : end]))
            start = end
        del buffer[:start]

    def _take(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        if kind == Frame.DATA:
            self._count(len(payload))
        elif kind in (Frame.HEADERS, Frame.CONTINUATION):
            self._take_headers(kind, flags, stream, payload)
        elif kind == Frame.WINDOW_UPDATE:
            self._widen(stream, int.from_bytes(payload, "big"))
        elif kind == Frame.SETTINGS and not flags & ACK:
            self._apply(payload)
        elif kind == Frame.PING and not flags & ACK:
            self._write(frame(Frame.PING, ACK, 0, payload))
        elif kind == Frame.RST_STREAM and stream == self._stream:
            self._finish(Unavailable(f"the server reset the call with error {int.from_bytes(payload, 'big')}"))
        elif kind == Frame.GOAWAY:
            self.usable = False

    def _take_headers(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        if kind == Frame.HEADERS:
            self._ends = bool(flags & END_STREAM)
            padding = payload[0] if flags & PADDED else 0
            start = (1 if flags & PADDED else 0) + (5 if flags & PRIORITY else 0)
            payload = payload[start : len(payload) - padding]
        self._block += payload
        if flags & END_HEADERS:
            block, self._block = self._block, b""
            if self._ends and stream == self._stream:
                self._finish(self._outcome(block))

    def _outcome(self, block: bytes) -> Exception | None:
        if block not in self._known:
            outcome = _decode(block)
            if outcome is not None:
                return outcome
            self._known[block] = None
        return None

    def _count(self, size: int) -> None:
        """Give the connection's window back long before it is used up; that of a stream outlasts any answer."""
        self._received += size
        if self._received > _RENEW_AFTER:
            self._write(_window_update(self._received))
            self._received = 0

    def _widen(self, stream: int, size: int) -> None:
        if stream == 0:
            self._window += size
        elif stream == self._stream:
            self._stream_window += size
        self._write(self._next_data())

    def _apply(self, payload: bytes) -> None:
        for name, value in struct.iter_unpack(">HI", payload):
            if name == Setting.INITIAL_WINDOW_SIZE:
                self._stream_window += value - self._initial_window
                self._initial_window = value
            elif name == Setting.MAX_FRAME_SIZE:
                self._max_frame = value
        self._write(frame(Frame.SETTINGS, ACK, 0, b"") + self._next_data())

    def _next_data(self) -> bytes:
        """What of the request may be sent now."""
        frames = []
        while self._unsent and (size := min(len(self._unsent), self._max_frame, self._window, self._stream_window)) > 0:
            part, self._unsent = self._unsent[:size], self._unsent[size:]
            self._window -= size
            self._stream_window -= size
            frames.append(frame(Frame.DATA, 0 if self._unsent else END_STREAM, self._stream, bytes(part)))
        return b"".join(frames)

    def _write(self, data: bytes) -> None:
        if data and self._transport:
            self._transport.write(data)

    def _finish(self, error: Exception | None) -> None:
        done, self._done = self._done, None
        if done:
            done(error)


def _window_update(size: int) -> bytes:
    return frame(Frame.WINDOW_UPDATE, 0, 0, size.to_bytes(4, "big"))


def _decode(block: bytes) -> Exception | None:
    from hpack import Decoder

    headers = {str(name): str(value) for name, value in Decoder().decode(block)}
    status = headers.get("grpc-status")
    if status == "0":
        return None
    if status is None or not status.isdigit() or int(status) >= len(GRPC_CODES):
        return InferenceFailed(f"the server ended the call without a gRPC status: {headers}")
    return error_from_grpc(GRPC_CODES[int(status)], unquote(headers.get("grpc-message", "")))
