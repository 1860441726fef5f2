"""RFC 9113 as the fast lane of gRPC keeps it: raw frames in, raw frames out."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import NamedTuple

import grpc
import hpack
import numpy as np
import pytest

from tidemill.protocol import messages, rpc
from tidemill.protocol.http2 import PREFACE, Fault, Frame, Setting, frame, literal, settings
from tidemill.protocol.types import InferRequest
from tidemill.serving.run import Server

ENDS, END_STREAM, END_HEADERS, PADDED, PRIORITY = 5, 1, 4, 8, 32
PATH = rpc.method_path("ModelInfer")
ROWS = np.arange(6, dtype=np.float32).reshape(2, 3)


class Seen(NamedTuple):
    kind: int
    flags: int
    stream: int
    payload: bytes


class Peer:
    """A client that sends whatever bytes a test wants."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._decoder = hpack.Decoder()
        self.seen: list[Seen] = []

    def send(self, *parts: bytes) -> None:
        self._writer.write(b"".join(parts))

    def greet(self, values: dict[Setting, int] | None = None) -> None:
        self.send(PREFACE, settings(values or {}))

    async def next(self) -> Seen | None:
        """The next frame; None at the end of the connection."""
        try:
            head = await asyncio.wait_for(self._reader.readexactly(9), 10)
            payload = await self._reader.readexactly(int.from_bytes(head[:3], "big"))
        except (asyncio.IncompleteReadError, ConnectionResetError):
            return None
        self.seen.append(Seen(head[3], head[4], int.from_bytes(head[5:], "big"), payload))
        return self.seen[-1]

    async def until(self, kind: Frame, stream: int | None = None, flags: int = 0) -> Seen:
        while found := await self.next():
            if found.kind == kind and stream in (None, found.stream) and found.flags & flags == flags:
                return found
        raise AssertionError(f"the connection ended without {kind.name}; seen {self.seen}")

    async def answer(self, stream: int) -> tuple[dict[str, str], bytes]:
        """All header fields and the body of a response."""
        fields: dict[str, str] = {}
        body = b""
        while found := await self.next():
            if found.stream != stream:
                continue
            if found.kind == Frame.DATA:
                body += found.payload
            if found.kind == Frame.HEADERS:
                fields |= {str(name): str(value) for name, value in self._decoder.decode(found.payload)}
                if found.flags & END_STREAM:
                    return fields, body
        raise AssertionError(f"the connection ended in the answer; seen {self.seen}")

    async def close(self) -> None:
        self._writer.close()


def head(path: str = PATH, **more: str) -> bytes:
    fields = {":method": "POST", ":scheme": "http", ":path": path, ":authority": "localhost", "te": "trailers"}
    fields |= {"content-type": "application/grpc"} | {name.replace("_", "-"): value for name, value in more.items()}
    return b"".join(literal(name.encode(), value.encode()) for name, value in fields.items())


def message(model: str = "identity", rows: np.ndarray = ROWS) -> bytes:
    data = rpc.request_to_message(InferRequest(model, {"x": rows})).SerializeToString()
    return struct.pack(">BI", 0, len(data)) + data


def call(stream: int, block: bytes | None = None, body: bytes | None = None) -> bytes:
    opened = frame(Frame.HEADERS, END_HEADERS, stream, head() if block is None else block)
    return opened + frame(Frame.DATA, END_STREAM, stream, message() if body is None else body)


def update(stream: int, size: int) -> bytes:
    return frame(Frame.WINDOW_UPDATE, 0, stream, struct.pack(">I", size))


@pytest.fixture
async def lane(write_model: Callable[[str], Path], start_server: Callable[..., Awaitable[Server]]) -> Server:
    return await start_server(write_model("identity"), grpc_fast_lane=True, max_request_bytes=4 << 20)


@pytest.fixture
async def peer(lane: Server) -> AsyncIterator[Peer]:
    found = Peer(*await asyncio.open_connection("127.0.0.1", lane.grpc_port))
    yield found
    await found.close()


CONNECTION_FAULTS: dict[str, tuple[bytes, Fault]] = {
    "no preface": (b"GET / HTTP/1.1\r\nhost: x\r\n\r\n" + bytes(24), Fault.PROTOCOL_ERROR),
    "data on stream 0": (PREFACE + settings({}) + frame(Frame.DATA, 0, 0, b"x"), Fault.PROTOCOL_ERROR),
    "data on an idle stream": (PREFACE + settings({}) + frame(Frame.DATA, 0, 1, b"x"), Fault.PROTOCOL_ERROR),
    "headers on stream 0": (PREFACE + settings({}) + frame(Frame.HEADERS, ENDS, 0, head()), Fault.PROTOCOL_ERROR),
    "headers on an even stream": (PREFACE + settings({}) + frame(Frame.HEADERS, ENDS, 2, head()), Fault.PROTOCOL_ERROR),
    "an id that was used": (
        PREFACE + settings({}) + call(3) + frame(Frame.HEADERS, ENDS, 1, head()),
        Fault.STREAM_CLOSED,
    ),
    "padding over the payload": (
        PREFACE + settings({}) + frame(Frame.HEADERS, ENDS | PADDED, 1, b"\x09abc"),
        Fault.PROTOCOL_ERROR,
    ),
    "a priority cut short": (
        PREFACE + settings({}) + frame(Frame.HEADERS, ENDS | PRIORITY, 1, b"\0\0"),
        Fault.FRAME_SIZE_ERROR,
    ),
    "a block that cannot be decoded": (
        PREFACE + settings({}) + frame(Frame.HEADERS, ENDS, 1, b"\xff\xff\xff\xff\xff\xff"),
        Fault.COMPRESSION_ERROR,
    ),
    "a frame that is too large": (
        PREFACE + settings({}) + frame(Frame.DATA, 0, 1, bytes(16385)),
        Fault.FRAME_SIZE_ERROR,
    ),
    "an interrupted header block": (
        PREFACE + settings({}) + frame(Frame.HEADERS, 0, 1, head()) + frame(Frame.PING, 0, 0, bytes(8)),
        Fault.PROTOCOL_ERROR,
    ),
    "a continuation of nothing": (PREFACE + settings({}) + frame(Frame.CONTINUATION, 4, 1), Fault.PROTOCOL_ERROR),
    "a reset of an idle stream": (
        PREFACE + settings({}) + frame(Frame.RST_STREAM, 0, 1, bytes(4)),
        Fault.PROTOCOL_ERROR,
    ),
    "a reset of another size": (
        PREFACE + settings({}) + call(1) + frame(Frame.RST_STREAM, 0, 1, bytes(3)),
        Fault.FRAME_SIZE_ERROR,
    ),
    "settings of a stream": (PREFACE + frame(Frame.SETTINGS, 0, 1), Fault.PROTOCOL_ERROR),
    "settings of another size": (PREFACE + frame(Frame.SETTINGS, 0, 0, bytes(5)), Fault.FRAME_SIZE_ERROR),
    "an acknowledgement with settings": (PREFACE + frame(Frame.SETTINGS, 1, 0, bytes(6)), Fault.FRAME_SIZE_ERROR),
    "a window over the limit": (PREFACE + settings({Setting.INITIAL_WINDOW_SIZE: 2**31}), Fault.FLOW_CONTROL_ERROR),
    "frames below the least size": (PREFACE + settings({Setting.MAX_FRAME_SIZE: 100}), Fault.PROTOCOL_ERROR),
    "an impossible push": (PREFACE + settings({Setting.ENABLE_PUSH: 2}), Fault.PROTOCOL_ERROR),
    "a push": (PREFACE + settings({}) + frame(Frame.PUSH_PROMISE, 4, 1, bytes(4)), Fault.PROTOCOL_ERROR),
    "a ping on a stream": (PREFACE + settings({}) + frame(Frame.PING, 0, 1, bytes(8)), Fault.PROTOCOL_ERROR),
    "a ping of another size": (PREFACE + settings({}) + frame(Frame.PING, 0, 0, bytes(7)), Fault.FRAME_SIZE_ERROR),
    "a goodbye on a stream": (PREFACE + settings({}) + frame(Frame.GOAWAY, 0, 1, bytes(8)), Fault.PROTOCOL_ERROR),
    "an increment of 0": (PREFACE + settings({}) + update(0, 0), Fault.PROTOCOL_ERROR),
    "an update of another size": (
        PREFACE + settings({}) + frame(Frame.WINDOW_UPDATE, 0, 0, bytes(3)),
        Fault.FRAME_SIZE_ERROR,
    ),
    "an overflow of the window": (PREFACE + settings({}) + update(0, 2**31 - 1), Fault.FLOW_CONTROL_ERROR),
    "an update of an idle stream": (PREFACE + settings({}) + update(1, 1), Fault.PROTOCOL_ERROR),
    "headers without end": (
        PREFACE + settings({}) + frame(Frame.HEADERS, 0, 1, head()) + frame(Frame.CONTINUATION, 0, 1, bytes(16000)) * 3,
        Fault.ENHANCE_YOUR_CALM,
    ),
    "continuations without end": (
        PREFACE + settings({}) + frame(Frame.HEADERS, 0, 1, head()) + frame(Frame.CONTINUATION, 0, 1) * 1100,
        Fault.ENHANCE_YOUR_CALM,
    ),
    "a header bomb": (
        PREFACE + settings({}) + frame(Frame.HEADERS, ENDS, 1, b"\x40\x01a\x7f\xa1\x1e" + bytes(4000) + b"\xbe" * 9000),
        Fault.ENHANCE_YOUR_CALM,
    ),
    "pings without end": (PREFACE + settings({}) + frame(Frame.PING, 0, 0, bytes(8)) * 1100, Fault.ENHANCE_YOUR_CALM),
    "settings without end": (PREFACE + settings({}) * 1100, Fault.ENHANCE_YOUR_CALM),
}


@pytest.mark.parametrize("case", CONNECTION_FAULTS)
async def test_who_breaks_the_protocol_is_told_so_and_cut_off(lane: Server, peer: Peer, case: str):
    sent, code = CONNECTION_FAULTS[case]
    peer.send(sent)
    goodbye = await peer.until(Frame.GOAWAY)
    assert struct.unpack(">II", goodbye.payload[:8])[1] == code, goodbye.payload
    assert await peer.next() is None
    assert lane.service.inflight == 0


STREAM_FAULTS: dict[str, tuple[bytes, Fault]] = {
    "upper case": (frame(Frame.HEADERS, ENDS, 1, head(Upper="x")), Fault.PROTOCOL_ERROR),
    "an unknown pseudo field": (frame(Frame.HEADERS, ENDS, 1, literal(b":what", b"x") + head()), Fault.PROTOCOL_ERROR),
    "a pseudo field at the end": (
        frame(Frame.HEADERS, ENDS, 1, head() + literal(b":path", b"/")),
        Fault.PROTOCOL_ERROR,
    ),
    "no path": (frame(Frame.HEADERS, ENDS, 1, literal(b":method", b"POST")), Fault.PROTOCOL_ERROR),
    "a connection field": (frame(Frame.HEADERS, ENDS, 1, head(connection="close")), Fault.PROTOCOL_ERROR),
    "data after the end": (call(1) + frame(Frame.DATA, 0, 1, b"x"), Fault.STREAM_CLOSED),
    "a second head": (
        frame(Frame.HEADERS, END_HEADERS, 1, head()) + frame(Frame.HEADERS, END_HEADERS, 1, head()),
        Fault.PROTOCOL_ERROR,
    ),
    "a stream's increment of 0": (frame(Frame.HEADERS, END_HEADERS, 1, head()) + update(1, 0), Fault.PROTOCOL_ERROR),
    "an overflow of a stream's window": (
        frame(Frame.HEADERS, END_HEADERS, 1, head()) + update(1, 2**31 - 1),
        Fault.FLOW_CONTROL_ERROR,
    ),
    "a priority of another size": (
        frame(Frame.HEADERS, END_HEADERS, 1, head()) + frame(Frame.PRIORITY, 0, 1, bytes(4)),
        Fault.FRAME_SIZE_ERROR,
    ),
}


@pytest.mark.parametrize("case", STREAM_FAULTS)
async def test_a_fault_of_one_stream_ends_that_stream_alone(peer: Peer, case: str):
    sent, code = STREAM_FAULTS[case]
    peer.greet()
    peer.send(sent)
    assert struct.unpack(">I", (await peer.until(Frame.RST_STREAM, 1)).payload) == (code,)
    peer.send(call(9))
    fields, body = await peer.answer(9)
    assert fields["grpc-status"] == "0"
    assert len(body) > ROWS.nbytes


async def test_rapid_resets_end_the_connection(lane: Server, peer: Peer):
    peer.greet()
    for stream in range(1, 2003, 2):
        peer.send(frame(Frame.HEADERS, END_HEADERS, stream, head()), frame(Frame.RST_STREAM, 0, stream, bytes(4)))
    goodbye = await peer.until(Frame.GOAWAY)
    assert struct.unpack(">II", goodbye.payload[:8])[1] == Fault.ENHANCE_YOUR_CALM
    assert lane.service.inflight == 0


async def test_odd_but_right_requests_are_answered(peer: Peer):
    peer.greet()
    block, body = head(), message()
    padded = bytes((3,)) + body[20:] + bytes(3)
    peer.send(
        frame(Frame.HEADERS, 0, 1, block[:20]),
        frame(Frame.CONTINUATION, 0, 1, block[20:30]),
        frame(Frame.CONTINUATION, END_HEADERS, 1, block[30:]),
        b"\0\0\1\x0a\0\0\0\0\0?",  # of a type that nobody knows
        frame(Frame.PRIORITY, 0, 1, bytes(5)),
        frame(Frame.DATA, 0, 1, body[:20]),
        frame(Frame.DATA, PADDED, 1, padded),
        frame(Frame.HEADERS, ENDS, 1, literal(b"a-trailer", b"x")),
    )
    fields, answer = await peer.answer(1)
    assert fields[":status"] == "200"
    assert fields["grpc-status"] == "0"
    response = messages.ModelInferResponse.FromString(answer[5:])
    assert list(response.outputs[0].shape) == [2, 3]


async def test_frames_may_arrive_byte_by_byte(peer: Peer):
    for byte in PREFACE + settings({}) + call(1):
        peer.send(bytes((byte,)))
        await asyncio.sleep(0)
    assert (await peer.answer(1))[0]["grpc-status"] == "0"


async def test_pings_and_settings_are_acknowledged(peer: Peer):
    peer.greet()
    peer.send(frame(Frame.PING, 0, 0, b"12345678"))
    assert not (await peer.until(Frame.SETTINGS, 0, flags=1)).payload
    assert (await peer.until(Frame.PING, 0, flags=1)).payload == b"12345678"


async def test_no_more_is_sent_than_the_client_takes(peer: Peer):
    rows = np.zeros((1024, 3), np.float32)
    peer.greet({Setting.INITIAL_WINDOW_SIZE: 10})
    peer.send(call(1, body=message(rows=rows)))
    assert len((await peer.until(Frame.DATA, 1)).payload) == 10
    peer.send(update(1, 7), frame(Frame.PING, 0, 0, bytes(8)))
    assert len((await peer.until(Frame.DATA, 1)).payload) == 7
    await peer.until(Frame.PING, 0)
    peer.send(settings({Setting.INITIAL_WINDOW_SIZE: 1 << 20}))
    fields, _ = await peer.answer(1)
    assert fields["grpc-status"] == "0"
    assert sum(len(it.payload) for it in peer.seen if it.kind == Frame.DATA) > rows.nbytes


async def test_a_request_beyond_the_window_is_let_in_bit_by_bit(peer: Peer):
    rows = np.zeros((200_000, 3), np.float32)
    body = message(rows=rows)
    assert len(body) > 2 << 20
    peer.greet({Setting.INITIAL_WINDOW_SIZE: 1 << 30})
    peer.send(update(0, 1 << 30), frame(Frame.HEADERS, END_HEADERS, 1, head()))
    windows = {0: 65535, 1: 65535}
    for start in range(0, len(body), 16384):
        part = body[start : start + 16384]
        while min(windows.values()) < len(part):
            found = await peer.next()
            assert found is not None
            if found.kind == Frame.WINDOW_UPDATE:
                windows[found.stream] += int.from_bytes(found.payload, "big")
            if found.kind == Frame.SETTINGS and not found.flags:
                pairs = dict(struct.iter_unpack(">HI", found.payload))
                windows[1] += pairs[Setting.INITIAL_WINDOW_SIZE] - 65535
        windows = {stream: left - len(part) for stream, left in windows.items()}
        peer.send(frame(Frame.DATA, END_STREAM if start + 16384 >= len(body) else 0, 1, part))
    fields, answer = await peer.answer(1)
    assert fields["grpc-status"] == "0"
    assert len(answer) > rows.nbytes


CALLS: dict[str, tuple[bytes, bytes, str]] = {
    "no message": (head(), b"", "INVALID_ARGUMENT"),
    "a message cut short": (head(), message()[:-1], "INVALID_ARGUMENT"),
    "two messages": (head(), message() * 2, "INVALID_ARGUMENT"),
    "no protobuf": (head(), b"\0\0\0\0\4\xff\xff\xff\xff", "INVALID_ARGUMENT"),
    "a compressed message": (head(grpc_encoding="gzip"), b"\1" + message()[1:], "UNIMPLEMENTED"),
    "an unknown model": (head(), message("nope"), "NOT_FOUND"),
    "a wrong shape": (head(), message(rows=ROWS[:, :2]), "INVALID_ARGUMENT"),
    "a deadline that has passed": (head(grpc_timeout="0n"), message(), "DEADLINE_EXCEEDED"),
    "a method that nobody knows": (head("/nobody/Knows"), message(), "UNIMPLEMENTED"),
}


@pytest.mark.parametrize("case", CALLS)
async def test_what_cannot_be_answered_gets_its_status(peer: Peer, case: str):
    block, body, status = CALLS[case]
    peer.greet()
    peer.send(call(1, block, body))
    fields, _ = await peer.answer(1)
    assert fields["grpc-status"] == str(grpc.StatusCode[status].value[0]), fields
    assert fields["grpc-message"]


async def test_a_message_over_the_limit_is_refused_before_it_is_complete(peer: Peer):
    peer.greet()
    body = bytes(5 << 20)
    peer.send(frame(Frame.HEADERS, END_HEADERS, 1, head()))
    peer.send(*(frame(Frame.DATA, 0, 1, body[start : start + 16384]) for start in range(0, 1 << 20, 16384)))
    sent = 1 << 20
    while found := await peer.next():
        if found.kind == Frame.HEADERS:
            break
        if found.kind == Frame.WINDOW_UPDATE and found.stream == 1:
            size = int.from_bytes(found.payload, "big")
            peer.send(*(frame(Frame.DATA, 0, 1, body[at : at + 16384]) for at in range(0, size, 16384)))
            sent += size
    assert found is not None
    assert b"max_request_bytes" in found.payload
    assert sent < 5 << 20


@pytest.mark.parametrize(
    ("method", "kind", "status"), [("GET", "application/grpc", "405"), ("POST", "text/html", "415")]
)
async def test_what_is_no_grpc_gets_an_http_status(peer: Peer, method: str, kind: str, status: str):
    peer.greet()
    fields = {":method": method, ":scheme": "http", ":path": PATH, "content-type": kind}
    block = b"".join(literal(name.encode(), value.encode()) for name, value in fields.items())
    peer.send(frame(Frame.HEADERS, ENDS, 1, block))
    assert (await peer.answer(1))[0][":status"] == status


async def test_at_its_end_the_server_says_goodbye(lane: Server, peer: Peer):
    peer.greet()
    peer.send(call(1))
    await peer.answer(1)
    stopping = asyncio.create_task(lane.stop())
    assert struct.unpack(">II", (await peer.until(Frame.GOAWAY)).payload) == (1, Fault.NO_ERROR)
    assert await peer.next() is None
    await stopping
