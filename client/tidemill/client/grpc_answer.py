"""The answer of one unary gRPC call, put together from the frames of its stream; knows no connection."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from urllib.parse import unquote

from tidemill.client.attempts import NotRun
from tidemill.errors import Cancelled, DeadlineExceeded, InferenceFailed, TidemillError, Unavailable
from tidemill.protocol.http2 import Fault
from tidemill.protocol.status import GRPC_CODES, error_from_grpc, error_from_http

__all__ = ["Answer"]

_PREFIX = 5
_REFUSED_HTTP = ("429", "503")
_NEARLY = 0.9


class Answer:
    """What has come so far.

    Args:
        seconds: How long the server was told that the caller waits; None for as long as it takes.
        clock: Seconds that only grow.

    Attributes:
        ended: Whether nothing more comes.
        keeps: Whether the connection may be used after it.
    """

    def __init__(self, seconds: float | None, clock: Callable[[], float]) -> None:
        self.ended = False
        self.keeps = True
        self._seconds = seconds
        self._clock = clock
        self._begun = clock()
        self._fields: dict[str, str] = {}
        self._prefix = bytearray()
        self._content: bytes | bytearray | None = None
        self._place = 0
        self._fault: TidemillError | None = None

    def headers(self, fields: Mapping[str, str]) -> None:
        """Headers or trailers."""
        self._fields.update(fields)

    def data(self, data: memoryview) -> None:
        """A piece of the message, of any size.

        Raises:
            InferenceFailed: The server compressed it, or sends more than one.
        """
        if self._content is None:
            missing = _PREFIX - len(self._prefix)
            self._prefix += data[:missing]
            if len(self._prefix) < _PREFIX:
                return
            data = data[missing:]
            self._begin(data)
        else:
            self._fill(data)

    def room(self, size: int) -> memoryview | None:
        """Where at most so many bytes of the message may be received; None if its length is not known yet."""
        if self._content is None or self._place >= len(self._content):
            return None
        return memoryview(self._content)[self._place : self._place + size]

    def filled(self, count: int) -> None:
        """So many bytes were received there."""
        self._place += count

    def end(self) -> None:
        """Nothing more comes."""
        self.ended = True

    def reset(self, code: int) -> None:
        """The server ended the call in disorder, or wants no more of an answered one's request."""
        if not self.ended and self._fault is None:
            self._fault = self._fault_of(code)
        self.ended = True

    def result(self) -> bytes | bytearray:
        """The message.

        Raises:
            TidemillError: The server's error, or what is wrong with its answer.
        """
        if self._fault:
            raise self._fault
        status = self._fields.get("grpc-status")
        if status != "0":
            raise self._error(status)
        if self._content is None or self._place != len(self._content):
            raise InferenceFailed("the server's answer ended before its message was whole")
        return self._content

    def _begin(self, data: memoryview) -> None:
        if self._prefix[0]:
            raise InferenceFailed("the server compressed its answer, though it was asked not to")
        size = int.from_bytes(self._prefix[1:])
        if len(data) == size:
            self._content, self._place = bytes(data), size
            return
        self._content = bytearray(size)
        self._fill(data)

    def _fill(self, data: memoryview) -> None:
        end = self._place + len(data)
        if not isinstance(self._content, bytearray) or end > len(self._content):
            raise InferenceFailed("the server sent more than one message as its answer")
        self._content[self._place : end] = data
        self._place = end

    def _error(self, status: str | None) -> TidemillError:
        text = unquote(self._fields.get("grpc-message", "")) or "the server gave no text"
        if status is None:
            return self._http_error()
        number = int(status) if status.isdigit() and int(status) < len(GRPC_CODES) else 2
        name = GRPC_CODES[number]
        # The server itself says so: it did not take the request.
        return NotRun(text) if name == "UNAVAILABLE" else error_from_grpc(name, text)

    def _http_error(self) -> TidemillError:
        """What a proxy, or a server of something else, answered."""
        http = self._fields.get(":status", "")
        if http == "200" or not http.isdigit():
            return InferenceFailed("the server ended the call without a gRPC status")
        text = f"HTTP status {http} instead of an answer of gRPC"
        return NotRun(text) if http in _REFUSED_HTTP else error_from_http(int(http), text)

    def _fault_of(self, code: int) -> TidemillError:
        if code == Fault.REFUSED_STREAM:
            return NotRun("the server refused the call")
        late = self._seconds is not None and self._clock() - self._begun > self._seconds * _NEARLY
        if code == Fault.CANCEL and late:
            return DeadlineExceeded(f"the server gave the call up, as {self._seconds:.3g} s were over")
        if code == Fault.CANCEL:
            return Cancelled("the server cancelled the call")
        return Unavailable(f"the server reset the call with HTTP/2's error {code}")
