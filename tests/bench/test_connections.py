"""Both kinds of connection against servers that cut, delay, refuse and hang up as they please."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest
from raw_server import raw_server

from tidemill.bench.connections import Lane, opener
from tidemill.bench.encoding import encode
from tidemill.bench.settings import Settings
from tidemill.errors import DeadlineExceeded, InvalidArgument, NotFound, TidemillError, Unavailable
from tidemill.protocol.status import error_from_http

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n"


def _answering(answer: bytes, piece: int) -> Callable[..., Any]:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"POST /v2/models/m/infer HTTP/1.1\r\n")
            for start in range(0, len(answer), piece):
                writer.write(answer[start : start + piece])
                await writer.drain()
                await asyncio.sleep(0)

    return handle


async def _ask(lane: Lane, request: bytes) -> Exception | None:
    done: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()
    lane.send(request, done.set_result)
    async with asyncio.timeout(10):
        return await done


REQUEST = b"POST /v2/models/m/infer HTTP/1.1\r\n\r\n"


@pytest.mark.parametrize("piece", [1, 3, 1000])
@pytest.mark.parametrize("answer", [OK, CHUNKED, OK.replace(b"5\r\n\r\nhello", b"0\r\n\r\n")])
async def test_an_answer_in_pieces_is_one_answer(answer: bytes, piece: int) -> None:
    with raw_server(_answering(answer, piece)) as port:
        lane = Lane(opener(Settings("m", http_url=f"http://127.0.0.1:{port}"), "binary"))
        await lane.connect()
        assert [await _ask(lane, REQUEST) for _ in range(3)] == [None] * 3
        lane.close()


async def test_a_large_answer_is_read_to_its_end() -> None:
    large = b"HTTP/1.1 200 OK\r\ncontent-length: 3000000\r\n\r\n" + bytes(3_000_000)
    with raw_server(_answering(large, 100_000)) as port:
        lane = Lane(opener(Settings("m", http_url=f"http://127.0.0.1:{port}"), "binary"))
        await lane.connect()
        assert [await _ask(lane, REQUEST) for _ in range(3)] == [None] * 3
        lane.close()


@pytest.mark.parametrize(("status", "kind"), [(400, InvalidArgument), (404, NotFound), (503, Unavailable)])
async def test_an_error_is_told_by_kind_and_text(status: int, kind: type[TidemillError]) -> None:
    answer = b'HTTP/1.1 %d X\r\ncontent-length: 15\r\n\r\n{"error":"no!"}' % status
    with raw_server(_answering(answer, 7)) as port:
        lane = Lane(opener(Settings("m", http_url=f"http://127.0.0.1:{port}"), "binary"))
        await lane.connect()
        error = await _ask(lane, REQUEST)
        assert type(error) is type(error_from_http(status, ""))
        assert isinstance(error, kind)
        assert "no!" in str(error)
        lane.close()


async def test_a_lost_connection_fails_its_request_and_can_be_opened_again() -> None:
    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")

    with raw_server(hang_up) as port:
        lane = Lane(opener(Settings("m", http_url=f"http://127.0.0.1:{port}"), "binary"))
        for _ in range(2):
            await lane.connect()
            assert lane.usable
            assert isinstance(await _ask(lane, REQUEST), Unavailable)
            assert not lane.usable


async def test_connection_close_ends_the_connection_not_the_answer() -> None:
    with raw_server(_answering(OK.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"), 1000)) as port:
        lane = Lane(opener(Settings("m", http_url=f"http://127.0.0.1:{port}"), "binary"))
        await lane.connect()
        assert await _ask(lane, REQUEST) is None
        assert not lane.usable


async def test_a_request_that_takes_too_long_is_given_up() -> None:
    asked = threading.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        asked.set()
        await reader.read()

    with raw_server(silent) as port:
        lane = Lane(opener(Settings("m", http_url=f"http://127.0.0.1:{port}"), "binary"))
        await lane.connect()
        told: list[Exception | None] = []
        lane.send(REQUEST, told.append)
        assert await asyncio.to_thread(asked.wait, 10)
        lane.expire(lane.sent + 0.5, 1.0)
        assert told == []
        lane.expire(lane.sent + 1.5, 1.0)
        assert [type(it) for it in told] == [DeadlineExceeded]
        assert not lane.usable


@pytest.mark.parametrize("wire", ["binary", "grpc"])
async def test_a_server_that_is_not_there_is_told(wire: str) -> None:
    with raw_server(_answering(OK, 1)) as port:
        pass
    address = f"127.0.0.1:{port}"
    lane = Lane(opener(Settings("m", http_url=f"http://{address}", grpc_url=f"grpc://{address}"), wire))
    with pytest.raises(Unavailable, match="cannot connect to 127"):
        await lane.connect()


@pytest.mark.parametrize("floats", [1, 40_000, 2_000_000])
async def test_grpc_carries_messages_of_any_size(server: dict[str, str], floats: int) -> None:
    import numpy as np

    settings = Settings("identity", grpc_url=server["grpc"])
    feeds = [{"x": np.ones((floats, 3), np.float32)}]
    lane = Lane(opener(settings, "grpc"))
    await lane.connect()
    (request,) = encode(settings, "grpc", feeds)
    assert [await _ask(lane, request) for _ in range(3)] == [None] * 3
    lane.close()


@pytest.mark.parametrize(("model", "kind"), [("nobody", NotFound), ("sum", InvalidArgument)])
async def test_grpc_errors_are_told_by_kind_and_text(
    server: dict[str, str], model: str, kind: type[TidemillError]
) -> None:
    import numpy as np

    settings = Settings(model, grpc_url=server["grpc"])
    lane = Lane(opener(settings, "grpc"))
    await lane.connect()
    (request,) = encode(settings, "grpc", [{"wrong": np.ones((1, 3), np.float32)}])
    for _ in range(2):
        error = await _ask(lane, request)
        assert isinstance(error, kind)
        assert model in str(error) or "wrong" in str(error)
    lane.close()


async def test_a_stopping_grpc_server_fails_the_call(all_models: Any) -> None:
    async def goodbye(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(24)
        # SETTINGS without entries, GOAWAY of no error, then the end.
        writer.write(bytes.fromhex("0000000400000000000000080700000000000000000000000000"))
        await reader.read(1)

    with raw_server(goodbye) as port:
        lane = Lane(opener(Settings("m", grpc_url=f"grpc://127.0.0.1:{port}"), "grpc"))
        await lane.connect()
        assert isinstance(await _ask(lane, b"\0\0\0\0\0"), Unavailable)
        assert not lane.usable
