"""HTTP/1.1 without sockets: a generator says what to send and where to receive, any driver does it.

It reads what servers of the protocol answer: a Content-Length, chunks, or a body that ends with the connection (RFC
9112).
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import suppress
from typing import Any

from tidemill.client.call import Call, Part
from tidemill.client.http_core import Reply
from tidemill.client.link import Steps
from tidemill.errors import InferenceFailed, Unavailable

__all__ = ["Http1Link", "format_head"]

_FIRST_BYTES = 1 << 14
_LONGEST_HEAD = 1 << 16
_JOINED_BYTES = 1 << 16
_END = b"\r\n\r\n"


def format_head(host: str, sent: dict[str, str]) -> str:
    """The header lines that are the same in every request of a client."""
    lines = {"host": host, "accept-encoding": "identity"} | sent
    return "".join(f"{name}: {value}\r\n" for name, value in lines.items())


class Http1Link:
    """One connection to an HTTP server; implements `Link`.

    Args:
        prefix: What stands before every path.
        head: The header lines of every request.
    """

    def __init__(self, prefix: str, head: str) -> None:
        self.reusable = True
        self._prefix = prefix
        self._head = head

    def steps(self, call: Call[Any], seconds: float | None) -> Steps:  # noqa: ARG002 - the request itself says it
        """Send a request, then read to the end of its answer: a `Reply`."""
        self.reusable = False
        exchange = _Exchange(call, self._prefix, self._head)
        reply = yield from exchange.steps()
        self.reusable = exchange.reusable
        return reply

    def absorb(self, data: bytes) -> bool:  # noqa: ARG002 - the end, or an answer to nobody
        """A server of HTTP/1.1 has nothing to say of itself."""
        return False


class _Exchange:
    """One request and its answer; `reusable` says whether the connection can take another request afterwards."""

    def __init__(self, call: Call[Any], prefix: str, head: str) -> None:
        self.reusable = False
        self._call = call
        method, path = call.target.split(" ", 1)
        size = sum(map(len, call.parts))
        length = f"content-length: {size}\r\n" if method != "GET" else ""
        self._head = f"{method} {prefix}{path} HTTP/1.1\r\n{head}{call.headers}{length}\r\n".encode("latin-1")
        self._size = size

    def steps(self) -> Steps:
        """Send the request, then read to the end of the answer."""
        # A server that refuses a body closes while it is still sent; its answer may lie there to be read.
        with suppress(ConnectionError):
            yield self._written()
        status, headers, rest = yield from self._read_head()
        if headers.get("content-length", "").isdigit() and "transfer-encoding" not in headers:
            content = yield from self._read_sized(rest, int(headers["content-length"]))
        elif status in (204, 304):
            content = bytearray()
        elif headers.get("transfer-encoding", "").lower() == "chunked":
            content = yield from self._read_chunks(rest)
        else:
            content = yield from self._read_to_end(rest)
            return Reply(status, headers, content)
        self.reusable = self._keeps and headers.get("connection", "").lower() != "close"
        return Reply(status, headers, content)

    def _written(self) -> list[Part]:
        parts: Sequence[Part] = self._call.parts
        if self._size < _JOINED_BYTES:
            return [b"".join((self._head, *parts))]
        return [self._head, *parts]

    def _read_head(self) -> Generator[memoryview, int, tuple[int, dict[str, str], bytearray]]:
        found = bytearray()
        while True:
            while (end := found.find(_END)) < 0:
                if len(found) > _LONGEST_HEAD:
                    raise InferenceFailed("the server's answer does not follow HTTP: its head does not end")
                scratch = memoryview(bytearray(_FIRST_BYTES))
                count = yield scratch
                if not count:
                    raise Unavailable("the server closed the connection without an answer")
                found += scratch[:count]
            status, headers = self._parse_head(found[:end].decode("latin-1"))
            del found[: end + len(_END)]
            # 100 Continue and its like stand before the answer.
            if status >= 200:
                return status, headers, found

    def _parse_head(self, text: str) -> tuple[int, dict[str, str]]:
        first, *lines = text.split("\r\n")
        words = first.split(" ", 2)
        if not first.startswith("HTTP/1.") or len(words) < 2 or not words[1].isdigit():
            raise InferenceFailed(f"the server does not speak HTTP/1.1: it answered {first[:80]!r}")
        self._keeps = words[0] != "HTTP/1.0"
        headers = {}
        for line in lines:
            name, _, value = line.partition(":")
            headers[name.lower()] = value.strip()
        return int(words[1]), headers

    def _read_sized(self, rest: bytearray, size: int) -> Generator[memoryview, int, bytearray]:
        if len(rest) == size:
            return rest
        content = bytearray(size)
        filled = min(len(rest), size)
        content[:filled] = rest[:filled]
        view = memoryview(content)
        while filled < size:
            filled += yield from self._some(view[filled:])
        return content

    def _some(self, view: memoryview) -> Generator[memoryview, int, int]:
        count = yield view
        if not count:
            raise Unavailable("the server closed the connection in the middle of its answer")
        return count

    def _read_to_end(self, rest: bytearray) -> Generator[memoryview, int, bytearray]:
        scratch = bytearray(_FIRST_BYTES)
        while count := (yield memoryview(scratch)):
            rest += memoryview(scratch)[:count]
        return rest

    def _read_chunks(self, rest: bytearray) -> Generator[memoryview, int, bytearray]:
        content = bytearray()
        while True:
            line = yield from self._line(rest)
            try:
                size = int(line.split(b";")[0], 16)
            except ValueError:
                raise InferenceFailed(f"the server's answer holds a chunk of size {bytes(line[:20])!r}") from None
            if not size:
                break
            while len(rest) < size + 2:
                yield from self._more(rest)
            content += memoryview(rest)[:size]
            del rest[: size + 2]
        while (yield from self._line(rest)):
            pass
        return content

    def _line(self, rest: bytearray) -> Generator[memoryview, int, bytearray]:
        while (end := rest.find(b"\r\n")) < 0:
            if len(rest) > _LONGEST_HEAD:
                raise InferenceFailed("the server's answer holds a line that does not end")
            yield from self._more(rest)
        line = rest[:end]
        del rest[: end + 2]
        return line

    def _more(self, rest: bytearray) -> Generator[memoryview, int, None]:
        scratch = bytearray(_FIRST_BYTES)
        count = yield from self._some(memoryview(scratch))
        rest += memoryview(scratch)[:count]
