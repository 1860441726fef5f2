"""What the client sends again and what never, and when it gives up, against a server whose every byte is told."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import numpy as np
import orjson
import pytest
from raw_server import Handle, raw_server

from tidemill import errors
from tidemill.client import AsyncClient, Client
from tidemill.client.attempts import Attempts, NotRun, Policy

X = {"x": np.ones(2, np.float32)}
ANSWER = orjson.dumps({"model_name": "m", "outputs": [{"name": "y", "datatype": "FP32", "shape": [1], "data": [7.0]}]})
OK = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(ANSWER), ANSWER)
METADATA = orjson.dumps({"name": "m", "versions": ["1"], "platform": "p", "inputs": [], "outputs": []})
METADATA_OK = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(METADATA), METADATA)


def status(code: int, text: str) -> bytes:
    body = orjson.dumps({"error": text})
    return b"HTTP/1.1 %d No\r\ncontent-length: %d\r\n\r\n%s" % (code, len(body), body)


def scripted(answers: list[bytes], seen: list[bytes]) -> Handle:
    """Answers each request with the next bytes; b"" closes the connection instead."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            sizes = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length")]
            await reader.readexactly(int(sizes[0].split(b":")[1]) if sizes else 0)
            seen.append(head)
            answer = answers.pop(0)
            if not answer:
                return
            writer.write(answer)
            await writer.drain()
            if b"close" in answer or b"HTTP/1.0" in answer:
                return

    return handle


def ask(kind: type[Any], url: str, method: str, *arguments: Any, **options: Any) -> Any:
    if kind is Client:
        with Client(url) as client:
            return getattr(client, method)(*arguments, **options)

    async def run() -> Any:
        async with AsyncClient(url) as client:
            return await getattr(client, method)(*arguments, **options)

    return asyncio.run(run())


REFUSED, GATEWAY, CUT = status(503, "the queue is full"), status(502, "bad gateway"), b""
KINDS = pytest.mark.parametrize("kind", [Client, AsyncClient])


@KINDS
@pytest.mark.parametrize(
    ("answers", "options", "sent"),
    [
        ([REFUSED, REFUSED, OK], {}, 3),
        ([GATEWAY, OK], {"repeatable": True}, 2),
        ([CUT, OK], {"repeatable": True}, 2),
    ],
)
def test_what_did_not_run_or_may_run_twice_is_repeated(
    kind: type[Any], answers: list[bytes], options: dict[str, Any], sent: int
) -> None:
    seen: list[bytes] = []
    with raw_server(scripted(list(answers), seen)) as port:
        answer = ask(kind, f"127.0.0.1:{port}", "infer", "m", X, **options)
    assert answer["y"].tolist() == [7.0]
    assert len(seen) == sent


@KINDS
@pytest.mark.parametrize(
    ("answers", "options", "sent"),
    [
        ([REFUSED, OK], {"retries": 0}, 1),
        ([REFUSED, REFUSED, REFUSED, OK], {}, 3),
        ([GATEWAY, OK], {}, 1),
        ([CUT, OK], {}, 1),
        ([status(400, "bad"), OK], {"repeatable": True}, 1),
        ([status(500, "broke"), OK], {"repeatable": True}, 1),
    ],
)
def test_what_may_have_run_is_not(kind: type[Any], answers: list[bytes], options: dict[str, Any], sent: int) -> None:
    seen: list[bytes] = []
    with (
        raw_server(scripted(list(answers), seen)) as port,
        pytest.raises(errors.TidemillError, match="request 'the-id'"),
    ):
        ask(kind, f"127.0.0.1:{port}", "infer", "m", X, id="the-id", **options)
    assert len(seen) == sent


@KINDS
def test_questions_about_models_are_always_repeated(kind: type[Any]) -> None:
    seen: list[bytes] = []
    with raw_server(scripted([CUT, GATEWAY, METADATA_OK], seen)) as port:
        assert ask(kind, f"127.0.0.1:{port}", "metadata", "m").name == "m"
    assert len(seen) == 3


def test_a_connection_that_the_server_closed_is_not_taken_again() -> None:
    closed = threading.Event()

    async def answer_once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(OK)
        writer.close()
        await writer.wait_closed()
        closed.set()

    with raw_server(answer_once) as port, Client(f"127.0.0.1:{port}") as client:
        for _ in range(3):
            closed.clear()
            assert client.infer("m", X, retries=0)["y"][0] == 7
            assert closed.wait(10)


FORMS = {
    "chunks": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    + b"".join(b"%x;a=b\r\n%s\r\n" % (len(part), part) for part in (ANSWER[:5], ANSWER[5:]))
    + b"0\r\nx-trailer: 1\r\n\r\n",
    "until the end": b"HTTP/1.0 200 OK\r\n\r\n" + ANSWER,
    "after a continue": b"HTTP/1.1 100 Continue\r\n\r\n" + OK,
    "connection closed": OK.replace(b"\r\n", b"\r\nConnection: close\r\n", 1),
}


@KINDS
@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_an_answer_is_read(kind: type[Any], form: str) -> None:
    with raw_server(scripted([FORMS[form]], [])) as port:
        assert ask(kind, f"127.0.0.1:{port}", "infer", "m", X)["y"][0] == 7


@pytest.mark.parametrize(
    ("answer", "error", "text"),
    [
        (b"SSH-2.0-x\r\n\r\n close", errors.InferenceFailed, "does not speak HTTP/1.1"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 90\r\n\r\nclose", errors.Unavailable, "in the middle of its answer"),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nclose\r\n", errors.InferenceFailed, "a chunk of size"),
    ],
)
def test_broken_answers_are_told(answer: bytes, error: type[Exception], text: str) -> None:
    with raw_server(scripted([answer], [])) as port, pytest.raises(error, match=text):
        ask(Client, f"127.0.0.1:{port}", "infer", "m", X)


@KINDS
def test_a_timeout_is_for_the_whole_call(kind: type[Any]) -> None:
    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 999\r\n\r\n")
        while True:
            writer.write(b" ")
            await writer.drain()
            await asyncio.sleep(0.02)

    begun = time.monotonic()
    with raw_server(drip) as port, pytest.raises(errors.DeadlineExceeded):
        ask(kind, f"127.0.0.1:{port}", "infer", "m", X, timeout=0.3)
    assert time.monotonic() - begun < 1.5


async def test_a_cancelled_call_closes_its_connection() -> None:
    asked, closed = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    async def hold(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        loop.call_soon_threadsafe(asked.set)
        await reader.read()
        loop.call_soon_threadsafe(closed.set)

    with raw_server(hold) as port:
        async with AsyncClient(f"127.0.0.1:{port}") as client:
            call = asyncio.create_task(client.infer("m", X))
            await asyncio.wait_for(asked.wait(), 10)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            await asyncio.wait_for(closed.wait(), 10)


def test_attempts_end_in_time() -> None:
    now = [0.0]
    attempts = Attempts(Policy(timeout=1.0, retries=9), clock=lambda: now[0])
    assert attempts.left() == 1.0
    assert 0.05 <= attempts.delay(NotRun("full")) <= 0.1
    now[0] = 0.99
    with pytest.raises(NotRun, match="full"):
        attempts.delay(NotRun("full"))
    now[0] = 1.0
    with pytest.raises(errors.DeadlineExceeded):
        attempts.left()
