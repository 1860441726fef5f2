"""A connection of the REST face: uvicorn's protocol, with tidemill's errors and a cheaper watch over idle clients."""

from __future__ import annotations

import orjson
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

__all__ = ["CLOSE", "HttpProtocol"]

CLOSE = (b"connection", b"close")
_LONGEST_HEAD = 64 << 10


class HttpProtocol(HttpToolsProtocol):
    """uvicorn's protocol, with errors in the form of all others even where no HTTP could be read."""

    def __init__(self, *args: object, **options: object) -> None:
        super().__init__(*args, **options)  # type: ignore[arg-type]
        self._idle_since: float | None = None
        self._in_head = False
        self._head_bytes = 0

    def data_received(self, data: bytes) -> None:
        """Take what has arrived, unless a head goes on without end."""
        super().data_received(data)
        self._head_bytes = self._head_bytes + len(data) if self._in_head else 0
        if self._head_bytes > _LONGEST_HEAD and not self.transport.is_closing():
            text = f"the request's headers are over the limit of {_LONGEST_HEAD} bytes"
            self._hang_up("431 Request Header Fields Too Large", text)

    def on_message_begin(self) -> None:
        """A head begins."""
        self._in_head = True
        super().on_message_begin()

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
        """Hang up on a client that has been idle for too long; look again later if it has not."""
        self.timeout_keep_alive_task = None
        if self._idle_since is None:
            return
        left = self._idle_since + self.timeout_keep_alive - self.loop.time()
        if left > 0:
            self._watch(left)
        elif not self.transport.is_closing():
            self.transport.close()

    def _watch(self, seconds: float) -> None:
        self.timeout_keep_alive_task = self.loop.call_later(seconds, self.timeout_keep_alive_handler)

    def _unset_keepalive_if_required(self) -> None:
        # A timer set and cancelled for every request costs more than one that looks at the time.
        self._idle_since = None
