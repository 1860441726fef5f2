"""The fast lane: plain infer requests answered where their bytes arrive, without an ASGI application or a task.

It does for them what `serving.http.infer` does, over the same service; whatever is not plain, or comes while the
connection is busy, takes the normal lane. Knows connections; what is plain stands in `fast_head`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, RequestResponseCycle

from tidemill.errors import Cancelled
from tidemill.serving.http.body import Buffer
from tidemill.serving.http.fast_head import Head, Target, read_head
from tidemill.serving.http.fast_request import FastRequest, Lane, RefusedRequest
from tidemill.serving.http.infer import JOIN_BELOW
from tidemill.serving.http.protocol import HttpProtocol

__all__ = ["FastProtocol"]

_END_OF_HEAD = b"\r\n\r\n"


class FastProtocol(HttpProtocol):
    """A connection with both lanes; one request at a time, so that answers keep their order."""

    def __init__(self, *args: Any, lane: Lane, **options: Any) -> None:
        super().__init__(*args, **options)
        self._lane = lane
        self._request: FastRequest | RefusedRequest | None = None
        self._receiving = False
        self._in_burst = False
        self._writes_at_once = False
        self._between = True
        self._new_head: bytes | None = None
        self._unsent: list[Buffer] = []
        self._last = False

    # What the parser calls, but for requests whose head is known: those never get there

    def on_message_begin(self) -> None:
        """Forget the last request; what only the normal lane needs is made when it is taken."""
        self._between = False
        self._in_message = self._in_head = True
        self.url = b""
        self.headers = []
        self.expect_100_continue = False

    def on_headers_complete(self) -> None:
        """Choose the lane."""
        self._in_head = False
        admitted = self._admit()
        if admitted is None:
            self._take_normal_lane()
        else:
            self._request = admitted
            self._receiving = True

    def on_body(self, body: bytes) -> None:
        """Keep a part of the body."""
        if self._receiving and self._request:
            self._request.receive(body)
        else:
            super().on_body(body)

    def on_message_complete(self) -> None:
        """Have a complete request answered."""
        self._between = True
        if not self._receiving:
            super().on_message_complete()
            return
        self._in_message = False
        self._receiving = False
        if self._request:
            self._request.run(self._answer)

    # What the transport calls

    def data_received(self, data: bytes) -> None:
        """Take what has arrived: a whole request with a known head directly, all else through the parser."""
        self._new_head = None
        if self._between and (end := data.find(_END_OF_HEAD)) > 0:
            start = end + len(_END_OF_HEAD)
            known = self._lane.heads.get(data[:start])
            if known is None:
                self._new_head = data[:start]
            elif not self._is_busy and (left := len(data) - start - known[1].size) >= 0:
                if not left and self._join_burst(*known, data, start):
                    return
                if self._run_known(*known, data, start):
                    if not left:
                        return
                    data = data[-left:]
        super().data_received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        """End the work for a client that is gone."""
        request, self._request = self._request, None
        if request:
            request.abandon(Cancelled("the client closed the connection before its answer was ready"))
        self._unsent.clear()
        super().connection_lost(exc)

    def resume_writing(self) -> None:
        """Send what waited until the client read on."""
        super().resume_writing()
        if self._unsent:
            self._send()

    # What a burst calls

    @property
    def gone(self) -> bool:
        """Whether the client has left."""
        return bool(self.transport.is_closing())

    def answer(self, data: bytes) -> None:
        """Send an answer, and go on to the next request."""
        self._in_burst = False
        if not self._writes_at_once:
            self._writes_at_once = True
            self.transport.set_write_buffer_limits(high=0)
        self.transport.write(data)
        if self._last:
            self.transport.close()
        self.on_response_complete()

    def take_alone(self, message: bytes) -> None:
        """Have a request answered by itself."""
        self._in_burst = False
        end = message.index(_END_OF_HEAD) + len(_END_OF_HEAD)
        known = self._lane.heads.get(message[:end])
        if known is None or not self._run_known(*known, message, end):
            super().data_received(message)

    # What the server calls

    def shutdown(self) -> None:
        """Close the connection, after the answer if one is due."""
        if self._request is None and not self._in_burst:
            super().shutdown()
        self._last = True

    def _admit(self) -> FastRequest | RefusedRequest | None:
        parser = self.parser
        if self._is_busy or parser.get_method() != b"POST":
            return None
        target = self._lane.target(self.url)
        if target is None or parser.get_http_version() != "1.1" or not parser.should_keep_alive():
            return None
        head = read_head(self.headers)
        if head is None or (request := self._lane.open(target, head)) is None:
            return None
        if self._new_head and isinstance(request, FastRequest) and not head.request_id:
            self._lane.remember(self._new_head, target, head)
        return request

    def _join_burst(self, target: Target, head: Head, data: bytes, start: int) -> bool:
        """Have a request answered together with others that arrive now; False if it cannot be."""
        _, closes = self._lane.common_headers(self.server_state.default_headers)
        kind = None if closes or self._last else self._lane.kinds.find(target, head, data, start)
        if kind is None or self.flow.write_paused:
            return False
        self._unset_keepalive_if_required()
        self._in_burst = True
        self._lane.burst.add(kind, self, data, alone=len(self.connections) == 1)
        return True

    def _run_known(self, target: Target, head: Head, data: bytes, start: int) -> bool:
        request = self._lane.open(target, head)
        if request is None:
            return False
        self._unset_keepalive_if_required()
        self._request = request
        request.receive(data[start : start + head.size])
        request.run(self._answer)
        return True

    @property
    def _is_busy(self) -> bool:
        if self._request is not None or self._in_burst:
            return True
        return self.cycle is not None and not self.cycle.response_complete

    def _take_normal_lane(self) -> None:
        self._new_head = None
        url, headers, expects = self.url, self.headers, self.expect_100_continue
        super().on_message_begin()
        self._in_head = False
        self.url, self.expect_100_continue = url, expects
        self.headers.extend(headers)
        super().on_headers_complete()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        """Start a request of the normal lane, unless one of the fast lane has to be answered first."""
        if self._request is None and not self._in_burst:
            super()._start_asgi_task(cycle, app)
        else:
            self.flow.pause_reading()
            self.pipeline.appendleft((cycle, app))

    def _answer(self, status: int, headers: bytes, buffers: Sequence[Buffer]) -> None:
        common, closes = self._lane.common_headers(self.server_state.default_headers)
        self._last |= closes
        close = b"connection: close\r\n" if self._last and not closes else b""
        head = b"".join((STATUS_LINE[status], common, headers, close, b"\r\n"))
        small = sum(map(len, buffers)) < JOIN_BELOW
        self._unsent = [b"".join((head, *buffers))] if small else [head, *buffers]
        self._send()

    def _send(self) -> None:
        """Write as much as the client takes; go on to the next request when all is written."""
        while self._unsent and not self.flow.write_paused:
            self.transport.write(self._unsent.pop(0))
        if not self._unsent:
            self._request = None
            if self._last:
                self.transport.close()
            self.on_response_complete()
