"""One HTTP/1.1 connection that sends ready bytes and tells each answer's status; cheap, so that the load is not slow.

It reads what servers of the protocol answer: a Content-Length or chunks. It keeps no answer but the text of errors.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import cast

from tidemill.errors import Unavailable
from tidemill.protocol.status import error_from_http

__all__ = ["Http1Connection"]

_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_CHUNKED = re.compile(rb"\r\ntransfer-encoding: *chunked", re.IGNORECASE)
_CLOSE = re.compile(rb"\r\nconnection: *close", re.IGNORECASE)
_ERROR_BYTES = 2000
_REMEMBERED = 32

Done = Callable[[Exception | None], None]
"""Told once a request: None if it was answered with 200, else what is wrong."""


class Http1Connection(asyncio.Protocol):
    """One request at a time.

    Attributes:
        capacity: Requests that may be in flight at once.
        usable: Whether the connection still stands.
    """

    capacity = 1

    def __init__(self) -> None:
        self.usable = True
        self._transport: asyncio.Transport | None = None
        self._done: Done | None = None
        self._head = b""
        self._buffer = bytearray()
        self._left = 0
        # Heads of whole answers with status 200 that keep the connection, and how far they are from the answer's end.
        self._plain: dict[bytes, int] = {}

    def send(self, request: bytes, done: Done) -> None:
        """Send one request; `done` is called when its answer is whole."""
        self._done = done
        if self._transport is None or not self.usable:
            self._finish(Unavailable("the connection is closed"))
        else:
            self._transport.write(request)

    def close(self) -> None:
        """Close the connection; a request in flight fails."""
        if self._transport:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Part of asyncio.Protocol."""
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """Part of asyncio.Protocol."""
        self.usable = False
        self._finish(Unavailable(f"the server closed the connection{f': {exc}' if exc else ''}"))

    def data_received(self, data: bytes) -> None:
        """Part of asyncio.Protocol."""
        if not (self._buffer or self._head):
            end = data.find(b"\r\n\r\n")
            if self._plain.get(data[:end]) == len(data) - end:
                self._finish(None)
                return
        if self._left > len(data):
            # The middle of an answer: only counted, but for the words of an error.
            self._left -= len(data)
            if len(self._buffer) < _ERROR_BYTES:
                self._buffer += data
            return
        self._buffer += data
        if self._left:
            self._left -= len(data)
            self._answered()
        elif self._complete():
            self._answered()

    def _complete(self) -> bool:
        """Whether the answer in the buffer is whole; if not, how much is left where that is known."""
        if not self._head:
            end = self._buffer.find(b"\r\n\r\n")
            if end < 0:
                return False
            self._head = bytes(self._buffer[:end])
            del self._buffer[: end + 4]
        if length := _LENGTH.search(self._head):
            missing = int(length[1]) - len(self._buffer)
            self._left = max(0, missing)
            return missing <= 0
        if not _CHUNKED.search(self._head):
            return True
        return self._buffer.endswith(b"0\r\n\r\n")

    def _answered(self) -> None:
        head, body = self._head, bytes(self._buffer[:_ERROR_BYTES])
        self._head = b""
        self._buffer.clear()
        if _CLOSE.search(head):
            self.usable = False
            self.close()
        status = head[9:12]
        if status == b"200" and self.usable and (length := _LENGTH.search(head)):
            self._remember(head, int(length[1]))
        self._finish(None if status == b"200" else _error(status, body))

    def _remember(self, head: bytes, length: int) -> None:
        if len(self._plain) >= _REMEMBERED:
            # The date in it changes; old heads never come again.
            self._plain.clear()
        self._plain[head] = length + len(b"\r\n\r\n")

    def _finish(self, error: Exception | None) -> None:
        done, self._done = self._done, None
        if done:
            done(error)


def _error(status: bytes, body: bytes) -> Exception:
    return error_from_http(int(status) if status.isdigit() else 500, body.decode(errors="replace"))
