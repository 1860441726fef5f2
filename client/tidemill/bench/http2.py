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
from tidemill.protocol.status import error_from_grpc

__all__ = ["Http2Connection", "header_block"]

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _RESET, _SETTINGS, _PING, _GOAWAY, _WINDOW, _CONTINUATION = 0, 1, 3, 4, 6, 7, 8, 9
_END_STREAM, _END_HEADERS, _ACK, _PADDED, _PRIORITY = 1, 4, 1, 8, 32
_TABLE_SIZE, _INITIAL_WINDOW, _MAX_FRAME = 1, 4, 5
_FRAME = struct.Struct(">BHBBI")
_SETTING = struct.Struct(">HI")
_LARGEST_WINDOW = 2**31 - 1
_DEFAULT_WINDOW = 65_535
_RENEW_AFTER = 2**30

# gRPC's own names for the numbers of grpc-status.
_CODES = [
    "OK",
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
]


def header_block(path: str, authority: str, *, tls: bool, more: Mapping[str, str]) -> bytes:
    """The headers of a unary gRPC call, each written out: RFC 7541, 6.2.2."""
    headers = {":path": path, ":authority": authority, "content-type": "application/grpc", "te": "trailers", **more}
    # 0x83 is ":method: POST", 0x86 and 0x87 are ":scheme: http" and "https" of the static table.
    block = bytes([0x83, 0x87 if tls else 0x86])
    for name, value in headers.items():
        block += b"\0" + _text(name.lower().encode()) + _text(value.encode())
    return block


def _text(data: bytes) -> bytes:
    length, head = len(data), b""
    if length < 127:
        return bytes([length]) + data
    length -= 127
    while length >= 128:
        head += bytes([length % 128 + 128])
        length //= 128
    return bytes([127]) + head + bytes([length]) + data


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
        head = _frame(_HEADERS, _END_HEADERS, self._stream, self._headers)
        self._transport.write(head + self._next_data())

    def close(self) -> None:
        """Close the connection; a call in flight fails."""
        if self._transport:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Part of asyncio.Protocol."""
        self._transport = cast(asyncio.Transport, transport)
        settings = _SETTING.pack(_TABLE_SIZE, 0) + _SETTING.pack(_INITIAL_WINDOW, _LARGEST_WINDOW)
        opening = _frame(_SETTINGS, 0, 0, settings) + _window_update(_LARGEST_WINDOW - _DEFAULT_WINDOW)
        self._transport.write(_PREFACE + opening)

    def connection_lost(self, exc: Exception | None) -> None:
        """Part of asyncio.Protocol."""
        self.usable = False
        self._finish(Unavailable(f"the server closed the connection{f': {exc}' if exc else ''}"))

    def data_received(self, data: bytes) -> None:
        """Part of asyncio.Protocol."""
        buffer = self._buffer
        buffer += data
        start = 0
        while len(buffer) - start >= _FRAME.size:
            high, low, kind, flags, stream = _FRAME.unpack_from(buffer, start)
            end = start + _FRAME.size + (high << 16) + low
            if end > len(buffer):
                break
            self._take(kind, flags, stream & _LARGEST_WINDOW, bytes(buffer[start + _FRAME.size : end]))
            start = end
        del buffer[:start]

    def _take(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        if kind == _DATA:
            self._count(len(payload))
        elif kind in (_HEADERS, _CONTINUATION):
            self._take_headers(kind, flags, stream, payload)
        elif kind == _WINDOW:
            self._widen(stream, int.from_bytes(payload, "big"))
        elif kind == _SETTINGS and not flags & _ACK:
            self._apply(payload)
        elif kind == _PING and not flags & _ACK:
            self._write(_frame(_PING, _ACK, 0, payload))
        elif kind == _RESET and stream == self._stream:
            self._finish(Unavailable(f"the server reset the call with error {int.from_bytes(payload, 'big')}"))
        elif kind == _GOAWAY:
            self.usable = False

    def _take_headers(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        if kind == _HEADERS:
            self._ends = bool(flags & _END_STREAM)
            padding = payload[0] if flags & _PADDED else 0
            start = (1 if flags & _PADDED else 0) + (5 if flags & _PRIORITY else 0)
            payload = payload[start : len(payload) - padding]
        self._block += payload
        if flags & _END_HEADERS:
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
        for name, value in _SETTING.iter_unpack(payload):
            if name == _INITIAL_WINDOW:
                self._stream_window += value - self._initial_window
                self._initial_window = value
            elif name == _MAX_FRAME:
                self._max_frame = value
        self._write(_frame(_SETTINGS, _ACK, 0, b"") + self._next_data())

    def _next_data(self) -> bytes:
        """What of the request may be sent now."""
        frames = []
        while self._unsent and (size := min(len(self._unsent), self._max_frame, self._window, self._stream_window)) > 0:
            part, self._unsent = self._unsent[:size], self._unsent[size:]
            self._window -= size
            self._stream_window -= size
            frames.append(_frame(_DATA, 0 if self._unsent else _END_STREAM, self._stream, bytes(part)))
        return b"".join(frames)

    def _write(self, data: bytes) -> None:
        if data and self._transport:
            self._transport.write(data)

    def _finish(self, error: Exception | None) -> None:
        done, self._done = self._done, None
        if done:
            done(error)


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return _FRAME.pack(len(payload) >> 16, len(payload) & 0xFFFF, kind, flags, stream) + payload


def _window_update(size: int) -> bytes:
    return _frame(_WINDOW, 0, 0, size.to_bytes(4, "big"))


def _decode(block: bytes) -> Exception | None:
    from hpack import Decoder

    headers = {str(name): str(value) for name, value in Decoder().decode(block)}
    status = headers.get("grpc-status")
    if status == "0":
        return None
    if status is None or not status.isdigit() or int(status) >= len(_CODES):
        return InferenceFailed(f"the server ended the call without a gRPC status: {headers}")
    return error_from_grpc(_CODES[int(status)], unquote(headers.get("grpc-message", "")))
