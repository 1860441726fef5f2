"""A connection of the REST face: uvicorn's protocol, with tidemill's errors, and a watch over idle and slow clients."""

from __future__ import annotations

import asyncio

import orjson
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

__all__ = ["CLOSE", "HttpProtocol"]

CLOSE = (b"connection", b"close")
_LONGEST_HEAD = 64 << 10


class HttpProtocol(HttpToolsProtocol):
    """uvicorn's protocol, with errors in the form of all others even where no HTTP could be read."""

    def __init__(self, *args: object, read_timeout: float = 60.0, **options: object) -> None:
        """Serve a connection that is to be made.

        Args:
            *args: What uvicorn passes.
            read_timeout: Seconds for a whole head, and between two parts of a body.
            **options: What uvicorn passes.
        """
        super().__init__(*args, **options)  # type: ignore[arg-type]
        self._read_timeout = read_timeout
        self._idle_since: float | None = None
        self._heard: float | None = None
        self._in_message = self._in_head = False
        self._head_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for the first request."""
        super().connection_made(transport)
        self._idle_since = self.loop.time()
        self._watch(self.timeout_keep_alive)

    def data_received(self, data: bytes) -> None:
        """Take what has arrived, unless a head goes on without end."""
        super().data_received(data)
        self._head_bytes = self._head_bytes + len(data) if self._in_head else 0
        if self._head_bytes > _LONGEST_HEAD and not self.transport.is_closing():
            text = f"the request's headers are over the limit of {_LONGEST_HEAD} bytes"
            self._hang_up("431 Request Header Fields Too Large", text)
        self._note_progress()

    def on_message_begin(self) -> None:
        """A head begins."""
        self._in_message = self._in_head = True
        super().on_message_begin()

    def on_message_complete(self) -> None:
        """A request has come to its end."""
        self._in_message = False
        super().on_message_complete()

    def on_headers_complete(self) -> None:
        """It has ended."""
        self._in_head = False
        super().on_headers_complete()

    def send_400_response(self, msg: str) -> None:
        """Answer what is no HTTP, and hang up."""
        self._hang_up("400 Bad Request", msg)

    def _hang_up(self, status: str, text: str) -> None:
        body = orjson.dumps({"error": text})
        head = (
            f"HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n"
            "connection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the client."""
        super().connection_lost(exc)
        if self.timeout_keep_alive_task:
            self.timeout_keep_alive_task.cancel()
            self.timeout_keep_alive_task = None

    def on_response_complete(self) -> None:
        """Go on with the next request, or begin to wait for one."""
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())
            return
        self._idle_since = self.loop.time()
        if self.timeout_keep_alive_task is None:
            self._watch(self.timeout_keep_alive)

    def timeout_keep_alive_handler(self) -> None:
        """Hang up on a client that has been idle or slow for too long; look again later if it has not."""
        self.timeout_keep_alive_task = None
        if self.transport.is_closing():
            return
        now = self.loop.time()
        if self._heard is not None and self.flow.read_paused:
            # It is the server that does not read on.
            self._heard = now
        idle = None if self._idle_since is None else self._idle_since + self.timeout_keep_alive - now
        slow = None if self._heard is None else self._heard + self._read_timeout - now
        if slow is not None and slow <= 0:
            self._hang_up_on_slow()
        elif idle is not None and idle <= 0:
            self.transport.close()
        elif waits := [left for left in (idle, slow) if left is not None]:
            self._watch(min(waits))

    def _hang_up_on_slow(self) -> None:
        if self.cycle is not None and self.cycle.response_started and not self.cycle.response_complete:
            self.transport.close()
            return
        what = "head was not complete" if self._in_head else "body did not go on"
        text = f"the request's {what} for {self._read_timeout:g} s (read_timeout_seconds)"
        self._hang_up("408 Request Timeout", text)

    def _note_progress(self) -> None:
        """Remember when a request that is not complete was last heard of; of a head, when it began."""
        if not self._in_message:
            self._heard = None
            return
        first = self._heard is None
        if first or not self._in_head:
            self._heard = self.loop.time()
        if first:
            self._watch(min(self._read_timeout, self.timeout_keep_alive))

    def _watch(self, seconds: float) -> None:
        if self.timeout_keep_alive_task:
            self.timeout_keep_alive_task.cancel()
        self.timeout_keep_alive_task = self.loop.call_later(seconds, self.timeout_keep_alive_handler)

    def _unset_keepalive_if_required(self) -> None:
        # A timer set and cancelled for every request costs more than one that looks at the time.
        self._idle_since = None
