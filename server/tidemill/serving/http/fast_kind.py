"""Plain infer requests that differ in nothing but their numbers: which are, and how their answers are written.

Knows heads and bodies as bytes, and nothing of connections or models.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from tidemill.errors import TidemillError
from tidemill.protocol.alike import Alike, Bodies
from tidemill.protocol.bounded import Bounded
from tidemill.protocol.rest import HEADER_LENGTH, parse_infer
from tidemill.protocol.rest_alike import learn_binary, learn_json
from tidemill.serving.burst import Caller
from tidemill.serving.http.body import choose_encoding
from tidemill.serving.http.fast_head import Head, Target
from tidemill.serving.http.infer import COMPRESS_FROM

__all__ = ["BINARY_HEADERS", "JSON_HEADERS", "Kinds", "RestKind"]

JSON_HEADERS = b"content-type: application/json\r\ncontent-length: %d\r\n"
BINARY_HEADERS = (
    b"content-type: application/octet-stream\r\n" + HEADER_LENGTH.lower().encode() + b": %d\r\ncontent-length: %d\r\n"
)
_OK = STATUS_LINE[200]
_TIMING = b"server-timing: total;dur=%.3f\r\n\r\n"
_DATA = b'"data"'
_LONGEST = 6144
"""Bytes before the numbers that are worth remembering."""
_LARGEST = 64 << 10
"""Bytes of a body up to which requests are answered together; a larger one takes its time by itself."""


class RestKind:
    """One kind of requests over REST; implements `burst.Kind`."""

    protocol = "rest"

    def __init__(self, alike: Alike, accepted: str, common_lines: Callable[[], bytes]) -> None:
        """Note what all have in common.

        Args:
            alike: Reads and writes their bodies.
            accepted: The encodings that their answers may have, as clients list them.
            common_lines: The lines of the headers that every answer carries.
        """
        self.alike = alike
        self.declined = False
        self._packs = choose_encoding(accepted) != "identity" if accepted else False
        self._common_lines = common_lines

    def reply(self, callers: Sequence[Caller], bodies: Bodies, seconds: float) -> bool:
        """Answer each caller; False if answers have to be compressed."""
        json_length, texts = bodies
        if self._packs and max(map(len, texts)) >= COMPRESS_FROM:
            return False
        common, timing = _OK + self._common_lines(), _TIMING % (seconds * 1e3)
        if json_length is None:
            answers = [b"%b%b%b%b" % (common, JSON_HEADERS % len(text), timing, text) for text in texts]
        else:
            head = b"".join((common, BINARY_HEADERS % (json_length, len(texts[0])), timing))
            answers = [head + text for text in texts]
        for caller, answer in zip(callers, answers, strict=True):
            caller.answer(answer)
        return True


class Kinds:
    """The kinds that callers have repeated, by the bytes before their numbers."""

    def __init__(self, common_lines: Callable[[], bytes]) -> None:
        self._common_lines = common_lines
        self._known: Bounded[bytes, RestKind] = Bounded()
        self._seen: Bounded[bytes, bool] = Bounded()

    def find(self, target: Target, head: Head, message: bytes, start: int) -> RestKind | None:
        """The kind of a request; None if it has to be read by itself.

        Args:
            target: What it asks for.
            head: What it says before its body.
            message: All its bytes.
            start: Where in them the body begins.
        """
        numbers = (
            message.find(b"[", message.find(_DATA, start)) if head.json_length is None else start + head.json_length
        )
        key = message[:numbers]
        kind = self._known.get(key)
        if kind is not None:
            return None if kind.declined else kind
        return self._learn(key, target, head, message) if start < numbers < _LONGEST and head.size <= _LARGEST else None

    def _learn(self, key: bytes, target: Target, head: Head, message: bytes) -> RestKind | None:
        """Understand what comes for the second time; what comes once is not worth it."""
        seen = self._seen.get(key)
        self._seen.put(key, seen is not None)
        if seen is not False:
            return None
        start, numbers = len(message) - head.size, len(key)
        try:
            body = message[start:]
            request = parse_infer(body, head.json_length, model_name=target.model, model_version=target.version)
        except TidemillError:
            return None
        alike: Alike | None
        if head.json_length is None:
            alike = learn_json(request, message, start, numbers)
        else:
            alike = learn_binary(request, numbers, len(message) - numbers)
        if alike is None:
            return None
        kind = RestKind(alike, head.accepted, self._common_lines)
        self._known.put(key, kind)
        return kind
