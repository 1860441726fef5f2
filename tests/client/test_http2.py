"""HTTP/2 without sockets: a call of gRPC against a server whose every frame is told."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import pytest

from tidemill import errors
from tidemill.client.attempts import NotRun
from tidemill.client.call import Call
from tidemill.client.http2 import Http2Link
from tidemill.protocol.http2 import (
    ACK,
    END_HEADERS,
    END_STREAM,
    PADDED,
    PREFACE,
    PRIORITY,
    Fault,
    Frame,
    Setting,
    frame,
    literal,
    settings,
)

OK_HEAD = b"\x88" + literal(b"content-type", b"application/grpc")
Told = tuple[int, int, int, bytes]


def message(content: bytes) -> bytes:
    return struct.pack(">BI", 0, len(content)) + content


def head(block: bytes = OK_HEAD, stream: int = 1, flags: int = END_HEADERS) -> bytes:
    return frame(Frame.HEADERS, flags, stream, block)


def data(content: bytes, stream: int = 1, flags: int = 0) -> bytes:
    return frame(Frame.DATA, flags, stream, content)


def trailers(status: int = 0, text: str = "", stream: int = 1) -> bytes:
    block = literal(b"grpc-status", b"%d" % status) + (literal(b"grpc-message", text.encode()) if text else b"")
    return frame(Frame.HEADERS, END_HEADERS | END_STREAM, stream, block)


def goaway(last: int, code: Fault = Fault.NO_ERROR) -> bytes:
    return frame(Frame.GOAWAY, 0, 0, struct.pack(">II", last, code))


def window(stream: int, more: int) -> bytes:
    return frame(Frame.WINDOW_UPDATE, 0, stream, struct.pack(">I", more))


def reset(code: int, stream: int = 1) -> bytes:
    return frame(Frame.RST_STREAM, 0, stream, struct.pack(">I", code))


ANSWER = settings({}) + head() + data(message(b"answer")) + trailers()


class Wire:
    """Drives a link: keeps what it sends, and hands it what the server says, so many bytes at a time."""

    def __init__(self, link: Http2Link | None = None) -> None:
        self.link = link or Http2Link({"M": b"\x83"})
        self.sent = bytearray()

    def ask(self, said: bytes, request: bytes = b"q", *, piece: int = 1 << 20, seconds: float | None = None) -> Any:
        return self.converse(lambda _: said, request, piece=piece, seconds=seconds)

    def converse(
        self, answer: Callable[[bytes], bytes], request: bytes, *, piece: int = 1 << 20, seconds: float | None = None
    ) -> Any:
        """Asks; `answer` tells what the server says to the bytes sent since it spoke last, "" to close."""
        steps = self.link.steps(Call("M", bytes, [request[:3], request[3:]]), seconds)
        heard, unread = b"", b""
        try:
            step = next(steps)
            while True:
                if isinstance(step, memoryview):
                    if not unread:
                        unread, heard = answer(heard), b""
                    count = min(len(step), piece, len(unread))
                    step[:count] = unread[:count]
                    unread = unread[count:]
                    step = steps.send(count)
                else:
                    heard += b"".join(step)
                    self.sent += b"".join(step)
                    step = steps.send(0)
        except StopIteration as done:
            return bytes(done.value)

    def frames(self) -> list[Told]:
        assert self.sent.startswith(PREFACE)
        rest, found = bytes(self.sent[len(PREFACE) :]), []
        while rest:
            size = int.from_bytes(rest[:3])
            found.append((rest[3], rest[4], int.from_bytes(rest[5:9]), rest[9 : 9 + size]))
            rest = rest[9 + size :]
        return found

    def message(self, stream: int = 1) -> bytes:
        return b"".join(payload for kind, _, of, payload in self.frames() if kind == Frame.DATA and of == stream)


@pytest.mark.parametrize("piece", [1, 7, 1 << 20])
def test_a_call_in_pieces_of_any_size(piece: int) -> None:
    wire = Wire()
    assert wire.ask(ANSWER, b"question", piece=piece) == b"answer"
    assert wire.message() == message(b"question")
    assert wire.link.reusable


def test_calls_follow_each_other_on_one_connection() -> None:
    wire = Wire()
    assert wire.ask(ANSWER) == b"answer"
    assert wire.ask(head(stream=3) + data(message(b"second"), 3) + trailers(stream=3)) == b"second"
    assert wire.message(3) == message(b"q")


FORMS = {
    "empty": head() + data(message(b"")) + trailers(),
    "padded": head() + data(b"\x03" + message(b"answer") + bytes(3), flags=PADDED) + trailers(),
    "in many frames": head() + b"".join(data(bytes([byte])) for byte in message(b"answer")) + trailers(),
    "frames without data": head() + data(b"") + data(message(b"answer")) + data(b"") + trailers(),
    "continued headers": head(OK_HEAD[:4], flags=0) + frame(Frame.CONTINUATION, END_HEADERS, 1, OK_HEAD[4:]),
    "padded headers": head(b"\x02" + OK_HEAD + bytes(2), flags=END_HEADERS | PADDED),
    "headers of a priority": head(bytes(5) + OK_HEAD, flags=END_HEADERS | PRIORITY),
    "an unknown frame": head()
    + frame(Frame.PRIORITY, 0, 1, bytes(5))
    + struct.pack(">IBI", 3 << 8 | 99, 0, 0)
    + b"abc",
    "a remembered field": head(OK_HEAD + b"\x40" + literal(b"x", b"y")[1:]),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_an_answer(form: str) -> None:
    rest = b"" if FORMS[form].endswith(trailers()) else data(message(b"answer")) + trailers()
    assert Wire().ask(settings({}) + FORMS[form] + rest) == (b"" if form == "empty" else b"answer")


def test_large_answers_of_large_frames() -> None:
    content = bytes(range(256)) * 20_000
    whole = message(content)
    frames = b"".join(data(whole[start : start + 1_000_000]) for start in range(0, len(whole), 1_000_000))
    assert Wire().ask(settings({}) + head() + frames + trailers(), piece=100_000) == content


def test_no_more_is_sent_than_the_server_takes() -> None:
    question, wire = bytes(range(251)) * 1_200, Wire()
    opened = [65_535, 65_535]

    def answer(heard: bytes) -> bytes:
        assert all(kind != Frame.DATA or len(payload) <= 32_768 for kind, _, _, payload in wire.frames())
        left = len(message(question)) - len(wire.message())
        assert len(wire.message()) <= min(opened)
        if not left:
            return head() + data(message(b"answer")) + trailers()
        opened[0] += 50_000
        opened[1] += 70_000
        return settings({Setting.MAX_FRAME_SIZE: 32_768}) + window(0, 50_000) + window(1, 70_000)

    assert wire.converse(answer, question) == b"answer"
    assert wire.message() == message(question)


def test_all_that_the_server_takes_is_sent_before_it_is_heard() -> None:
    wire, wide = Wire(), settings({Setting.INITIAL_WINDOW_SIZE: 1 << 20}) + window(0, 1 << 20)
    wire.ask(wide + ANSWER)
    question = bytes(range(250)) * 4_000

    def answer(heard: bytes) -> bytes:
        assert wire.message(3) == message(question)
        return head(stream=3) + data(message(b"answer"), 3) + trailers(stream=3)

    assert wire.converse(answer, question) == b"answer"


def test_a_smaller_window_makes_what_is_left_negative() -> None:
    question, wire = bytes(100_000), Wire()
    said = [settings({Setting.INITIAL_WINDOW_SIZE: 10}), window(0, 100_000), window(1, 65_525 + 34_470), b""]

    def answer(heard: bytes) -> bytes:
        if len(wire.message()) == 100_005:
            return head() + data(message(b"answer")) + trailers()
        return said.pop(0)

    assert wire.converse(answer, question) == b"answer"


def test_pings_and_settings_are_acknowledged() -> None:
    wire = Wire()
    ping = frame(Frame.PING, 0, 0, b"12345678")
    wire.ask(settings({}) + ping + ANSWER)
    assert wire.link.absorb(frame(Frame.PING, 0, 0, b"abcdefgh") + frame(Frame.PING, ACK, 0, bytes(8)))
    wire.ask(head(stream=3) + data(message(b"a"), 3) + trailers(stream=3))
    acknowledged = [(kind, payload) for kind, flags, of, payload in wire.frames() if flags & ACK and not of]
    assert acknowledged.count((Frame.SETTINGS, b"")) == 2
    assert [payload for kind, payload in acknowledged if kind == Frame.PING] == [b"12345678", b"abcdefgh"]


def test_an_idle_connection_that_ends_is_not_used() -> None:
    for said in (b"", goaway(1), frame(Frame.PUSH_PROMISE, 0, 1, bytes(4))):
        wire = Wire()
        wire.ask(ANSWER)
        assert not wire.link.absorb(said)


def test_a_goodbye_lets_the_running_call_end() -> None:
    wire = Wire()
    assert wire.ask(settings({}) + goaway(1) + ANSWER) == b"answer"
    assert not wire.link.reusable


@pytest.mark.parametrize("said", [goaway(0), reset(Fault.REFUSED_STREAM), head() + trailers(14, "full")])
def test_what_the_server_did_not_take_may_be_sent_again(said: bytes) -> None:
    with pytest.raises(NotRun):
        Wire().ask(settings({}) + said)


def http_error(status: bytes) -> bytes:
    return head(literal(b":status", status), flags=END_HEADERS | END_STREAM)


@pytest.mark.parametrize(
    ("said", "error", "text"),
    [
        (trailers(5, "no model 'a'%0Athere"), errors.NotFound, "no model 'a'\nthere"),
        (trailers(3, "%E2%82%AC%zz"), errors.InvalidArgument, "€%zz"),
        (trailers(99), errors.TidemillError, "the server gave no text"),
        (head() + trailers(8, "large"), errors.TooLarge, "large"),
        (reset(Fault.INTERNAL_ERROR), errors.Unavailable, "error 2"),
        (reset(Fault.CANCEL), errors.Cancelled, "cancelled"),
        (http_error(b"404"), errors.NotFound, "HTTP status 404"),
        (http_error(b"502"), errors.Unavailable, "HTTP status 502"),
        (http_error(b"200"), errors.InferenceFailed, "without a gRPC status"),
        (head() + data(b"\x01\0\0\0\x01a") + trailers(), errors.InferenceFailed, "compressed"),
        (head() + data(message(b"a") * 2) + trailers(), errors.InferenceFailed, "more than one message"),
        (head() + data(message(b"a")) + data(message(b"a")) + trailers(), errors.InferenceFailed, "more than one"),
        (head() + data(message(b"abc")[:-1]) + trailers(), errors.InferenceFailed, "before its message was whole"),
        (head() + trailers(), errors.InferenceFailed, "before its message was whole"),
        (head() + data(message(b"a"), flags=END_STREAM), errors.InferenceFailed, "without a gRPC status"),
        (head() + data(message(b"a"), stream=9), errors.InferenceFailed, "does not follow HTTP/2"),
        (head(b"\xff\xff\xff"), errors.InferenceFailed, "does not follow HTTP/2"),
        (frame(Frame.CONTINUATION, END_HEADERS, 1), errors.InferenceFailed, "does not follow HTTP/2"),
        (settings({Setting.MAX_FRAME_SIZE: 1}), errors.InferenceFailed, "does not follow HTTP/2"),
        (window(1, 2**31 - 1), errors.InferenceFailed, "does not follow HTTP/2"),
        (struct.pack(">IBI", (1 << 21) << 8, 0, 1), errors.InferenceFailed, "does not follow HTTP/2"),
    ],
)
def test_errors(said: bytes, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        Wire().ask(settings({}) + said)


def test_a_connection_outlives_the_errors_of_its_calls_but_not_its_own() -> None:
    wire = Wire()
    for stream, end in ((1, trailers(3, "no", 1)), (3, reset(Fault.INTERNAL_ERROR, 3))):
        with pytest.raises(errors.TidemillError):
            wire.ask(head(stream=stream) + end)
        assert wire.link.reusable
    with pytest.raises(errors.InferenceFailed):
        wire.ask(head(stream=5) + data(b"\x01" + bytes(4), 5) + trailers(stream=5))
    assert not wire.link.reusable


def test_a_server_of_http1_is_told() -> None:
    with pytest.raises(errors.InferenceFailed, match=r"speaks HTTP/1\.1"):
        Wire().ask(b"HTTP/1.1 400 Bad Request\r\n\r\n")


def test_an_end_in_the_middle() -> None:
    said = [ANSWER[:-8], b""]
    with pytest.raises(errors.Unavailable, match="closed the connection") as caught:
        Wire().converse(lambda _: said.pop(0), b"q")
    assert not isinstance(caught.value, NotRun)


@pytest.mark.parametrize(("seconds", "told"), [(0.25, b"250000u"), (99.0, b"99000000u"), (4000.0, b"4000S")])
def test_the_server_is_told_how_long_the_caller_waits(seconds: float, told: bytes) -> None:
    wire = Wire()
    wire.ask(ANSWER, seconds=seconds)
    assert literal(b"grpc-timeout", told) in wire.sent


def test_a_reset_when_time_is_up_is_a_deadline() -> None:
    now = iter([0.0, 0.0, 1.0])
    link = Http2Link({"M": b"\x83"}, clock=lambda: next(now))
    with pytest.raises(errors.DeadlineExceeded):
        Wire(link).ask(settings({}) + reset(Fault.CANCEL), seconds=1.0)


def test_a_request_too_large_for_grpc_is_refused() -> None:
    class Long(bytes):
        def __len__(self) -> int:
            return 2**31

    with pytest.raises(errors.TooLarge, match="4294967295"):
        next(Http2Link({"M": b"\x83"}).steps(Call("M", bytes, [Long(), Long()]), None))
