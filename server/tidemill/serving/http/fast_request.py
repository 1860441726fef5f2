"""One request in the fast lane, from its bytes to those of its answer; knows the service and nothing of connections."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from tidemill.errors import TidemillError
from tidemill.protocol.bounded import Bounded
from tidemill.protocol.rest_cache import RestCache
from tidemill.protocol.types import InferRequest, InferResponse
from tidemill.serving.admission import Admitted
from tidemill.serving.burst import Burst
from tidemill.serving.http.body import Buffer, choose_encoding, compress
from tidemill.serving.http.errors import error_response
from tidemill.serving.http.fast_head import Head, Target, read_target
from tidemill.serving.http.fast_kind import BINARY_HEADERS, JSON_HEADERS, Kinds
from tidemill.serving.http.infer import COMPRESS_FROM, server_timing
from tidemill.serving.http.protocol import CLOSE
from tidemill.serving.keys import KeyRing
from tidemill.serving.request_id import HEADER
from tidemill.serving.service import Service
from tidemill.serving.underway import Underway

__all__ = ["Answer", "FastRequest", "Lane", "RefusedRequest"]

Answer: TypeAlias = Callable[[int, bytes, Sequence[Buffer]], None]
"""Takes the status, the header lines and the body of an answer."""
Headers: TypeAlias = Sequence[tuple[bytes, bytes]]

_LONGEST_HEAD = 2048
_BLANK = ord(" ")
_ID = HEADER.encode()
_PACKED = b"content-encoding: %b\r\nvary: accept-encoding\r\n"


class Lane:
    """What all connections of one server share: the service, and what is remembered from request to request.

    Attributes:
        service: What answers.
        cache: Reads and writes bodies.
        heads: What plain requests say before their bodies, by the bytes in which they say it: clients repeat them.
        burst: Answers what arrives in one turn of the loop together.
        kinds: What of it can be.
    """

    def __init__(self, service: Service, ring: KeyRing | None = None) -> None:
        self.service = service
        self._ring = ring or KeyRing()
        self.cache = RestCache()
        self.heads: Bounded[bytes, tuple[Target, Head]] = Bounded()
        self._targets: Bounded[bytes, Target] = Bounded()
        self._common: tuple[Headers, bytes, bool] = ((), b"", False)
        self.burst = Burst(service)
        self.kinds = Kinds(lambda: self._common[1])

    def target(self, url: bytes) -> Target | None:
        """The model that a path asks to run; None if it is another path or not a plain one."""
        target = self._targets.get(url)
        if target is None and (target := read_target(url)):
            self._targets.put(url, target)
        return target

    def remember(self, text: bytes, target: Target, head: Head) -> None:
        """Keep what the parser made of a head, if there is no doubt where it ends."""
        one_head = text.count(b"\n") == text.count(b"\r\n") == text.count(b"\r")
        if len(text) <= _LONGEST_HEAD and text[0] > _BLANK and one_head:
            self.heads.put(text, (target, head))

    def open(self, target: Target, head: Head) -> FastRequest | RefusedRequest | None:
        """Let a request in, or refuse it; None for what is too large or shows no key, which the normal lane tells."""
        if head.size > self.service.config.max_request_bytes or not self._ring.keys.opens("inference", head.key):
            return None
        carrier = {HEADER: head.request_id} if head.request_id else None
        try:
            admitted = self.service.admission.enter("rest", *target, carrier)
        except TidemillError as error:
            return RefusedRequest(head, error)
        return FastRequest(self, target, head, admitted)

    def forget(self) -> None:
        """Read every head anew; those that are known were let in by keys that may not count any more."""
        self.heads.clear()

    def common_headers(self, headers: Headers) -> tuple[bytes, bool]:
        """The lines of the headers that every answer carries, and whether they close the connection."""
        known, lines, closes = self._common
        if headers is not known:
            lines, closes = _lines(headers), CLOSE in headers
            self._common = headers, lines, closes
        return lines, closes


class RefusedRequest:
    """A request that was not admitted: refusing has to be cheaper than answering, or refusals bring the server down."""

    def __init__(self, head: Head, error: TidemillError) -> None:
        self._head = head
        self._error = error

    def receive(self, part: bytes) -> None:
        """Let a part of the body go by."""

    def run(self, answer: Answer) -> None:
        """Say why; the request is counted already."""
        _refuse(answer, self._error, self._head)

    def abandon(self, reason: Exception) -> None:
        """Nothing is under way."""


class FastRequest:
    """A request that was admitted; ends with one answer, or with `abandon`."""

    __slots__ = (
        "_admitted",
        "_answer",
        "_body",
        "_head",
        "_lane",
        "_packing",
        "_request",
        "_served",
        "_target",
        "_underway",
    )

    def __init__(self, lane: Lane, target: Target, head: Head, admitted: Admitted) -> None:
        self._lane = lane
        self._target = target
        self._head = head
        self._admitted: Admitted | None = admitted
        self._served = admitted.served
        self._body: bytes | bytearray = b""
        self._underway: Underway | None = None
        self._packing: asyncio.Task[None] | None = None

    def receive(self, part: bytes) -> None:
        """Take a part of the body."""
        if not self._body:
            self._body = part
        elif isinstance(self._body, bytearray):
            self._body += part
        else:
            self._body = bytearray(self._body) + part

    def run(self, answer: Answer) -> None:
        """Have the complete request answered; `answer` is called once, at once or later."""
        self._answer = answer
        try:
            self._request = self._read()
            if self._admitted:
                self._admitted.request = self._request
            self._underway = self._lane.service.begin(self._request, served=self._served)
        except Exception as error:
            self._refuse(error)
        else:
            self._underway.outputs.add_done_callback(self._finish)

    def abandon(self, reason: Exception) -> None:
        """End the work for a client that is gone."""
        self._leave(reason)
        if self._underway:
            self._underway.outputs.cancel()

    def _read(self) -> InferRequest:
        body, self._body = self._body, b""
        lane, (model, version) = self._lane, self._target
        reader = lane.service.memory.reader()
        return lane.cache.parse_infer(
            body, self._head.json_length, model_name=model, model_version=version, read_region=reader
        )

    def _finish(self, outputs: asyncio.Future[Any]) -> None:
        if self._admitted is None or self._underway is None:
            if not outputs.cancelled():
                outputs.exception()  # nobody waits for it, and it is to be no surprise either
            return
        try:
            response = self._underway.finish()
            json_length, buffers = self._lane.cache.format_infer_response(response, self._request)
            encoding = self._encoding(buffers)
        except (Exception, asyncio.CancelledError) as error:
            self._refuse(error)
            return
        if encoding == "identity":
            self._reply(response, json_length, buffers)
        else:
            self._packing = asyncio.ensure_future(self._pack(response, json_length, buffers, encoding))

    def _encoding(self, buffers: Sequence[Buffer]) -> str:
        accepted = self._head.accepted
        return choose_encoding(accepted) if accepted and _size(buffers) >= COMPRESS_FROM else "identity"

    async def _pack(
        self, response: InferResponse, json_length: int | None, buffers: Sequence[Buffer], encoding: str
    ) -> None:
        try:
            packed = await compress(buffers, encoding)
        except Exception as error:
            self._refuse(error)
        else:
            self._reply(response, json_length, packed, _PACKED % encoding.encode())

    def _reply(
        self, response: InferResponse, json_length: int | None, buffers: Sequence[Buffer], more: bytes = b""
    ) -> None:
        if self._admitted:
            self._admitted.timing = response.timing
        admitted = self._leave()
        if admitted is None:
            return
        size = _size(buffers)
        described = JSON_HEADERS % size if json_length is None else BINARY_HEADERS % (json_length, size)
        timing = server_timing(response, admitted.seconds).encode()
        self._answer(200, b"%bserver-timing: %b\r\n%b%b" % (described, timing, more, _shown_id(self._head)), buffers)

    def _refuse(self, error: BaseException) -> None:
        if self._leave(error):
            _refuse(self._answer, error, self._head)

    def _leave(self, error: BaseException | None = None) -> Admitted | None:
        """Count the request; None if that was done before, because its client is gone."""
        admitted, self._admitted = self._admitted, None
        if admitted:
            admitted.leave(error)
        return admitted


def _refuse(answer: Answer, error: BaseException, head: Head) -> None:
    response = error_response(error, head.request_id)
    answer(response.status_code, _lines(response.raw_headers) + _shown_id(head), [bytes(response.body)])


def _shown_id(head: Head) -> bytes:
    return b"%b: %b\r\n" % (_ID, head.request_id.encode()) if head.request_id else b""


def _size(buffers: Sequence[Buffer]) -> int:
    return sum(map(len, buffers))


def _lines(headers: Headers) -> bytes:
    return b"".join([b"%b: %b\r\n" % header for header in headers])
