"""Clients that send slowly, or nothing, or without end: they are told and let go, and nobody else notices."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from tidemill.serving import Server, ServerConfig

HEAD = b"POST /v2/models/two/infer HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
BODY = b'{"inputs": [{"name": "x", "shape": [1, 2], "datatype": "FP32", "data": [1, 2]}]}'
LIMIT = 0.4


@pytest.fixture(params=[True, False], ids=["fast lane", "normal lane"])
async def server(request: pytest.FixtureRequest, write_model: Callable[..., Path]) -> AsyncIterator[Server]:
    lanes = {"http_fast_lane": request.param}
    config = ServerConfig(http_port=0, grpc_port=0, read_timeout_seconds=LIMIT, **lanes)
    server = Server([write_model("two")], config)
    await server.start()
    await server.load()
    yield server
    await server.stop()


async def dripped(server: Server, data: bytes, size: int, pause: float, head: bytes = b"") -> bytes:
    """What the server answers to data that is sent piece by piece; b"" if it hangs up while more is sent."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.http_port)

    writer.write(head)

    async def drip() -> None:
        for place in range(0, len(data), size):
            writer.write(data[place : place + size])
            await writer.drain()
            await asyncio.sleep(pause)

    dripping = asyncio.create_task(drip())
    try:
        return await asyncio.wait_for(reader.read(4096), 5)
    except ConnectionError:
        return b""
    finally:
        dripping.cancel()
        await asyncio.gather(dripping, return_exceptions=True)
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


async def test_a_head_has_to_come_within_the_limit(server: Server) -> None:
    answer = await dripped(server, HEAD + b"x-more: ", 4096, 0.0)
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b"head" in answer
    assert b"read_timeout_seconds" in answer
    began = time.monotonic()
    assert await dripped(server, HEAD + b"x-more: " + b"y" * 2000, 8, 0.02) in (b"", answer)
    assert LIMIT <= time.monotonic() - began < LIMIT + 2


async def test_a_body_may_be_slow_but_not_stand_still(server: Server) -> None:
    head = HEAD + b"content-length: %d\r\n\r\n" % len(BODY)
    whole = await dripped(server, BODY, len(BODY) // 8, LIMIT / 4, head)
    assert whole.startswith(b"HTTP/1.1 200 ")
    stuck = await dripped(server, BODY[:-5], 4096, 0.0, head)
    assert stuck.startswith(b"HTTP/1.1 408 ")
    assert b"body" in stuck


async def test_whole_requests_are_never_late(server: Server) -> None:
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{server.http_port}") as client:
        for _ in range(3):
            answer = await client.post("/v2/models/two/infer", content=BODY)
            assert answer.status_code == 200
            await asyncio.sleep(LIMIT * 1.2)


async def test_a_crowd_of_slow_clients_disturbs_nobody(server: Server) -> None:
    slow = [asyncio.create_task(dripped(server, HEAD + b"x: " + b"y" * 400, 2, 0.05)) for _ in range(100)]
    silent = [await asyncio.open_connection("127.0.0.1", server.http_port) for _ in range(200)]
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{server.http_port}") as client:
        for _ in range(50):
            answer = await client.post("/v2/models/two/infer", content=BODY)
            assert answer.json()["outputs"][0]["data"] == [2.0, 3.0]
    told: list[Any] = await asyncio.gather(*slow)
    assert {answer[:12] for answer in told} <= {b"HTTP/1.1 408", b""}
    assert server.service.inflight == 0
    for _, writer in silent:
        writer.close()
    await asyncio.gather(*(writer.wait_closed() for _, writer in silent))


async def test_a_million_names_leave_no_series(server: Server) -> None:
    """Three hundred of them here; `benchmarks/hostile.py` sends as many as it can."""
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{server.http_port}") as client:
        before = (await client.get("/metrics")).text.count("\n")
        for first in range(0, 300, 100):
            names = (f"nobody-{number}" for number in range(first, first + 100))
            answers = await asyncio.gather(*(client.post(f"/v2/models/{name}/infer", content=BODY) for name in names))
            assert {answer.status_code for answer in answers} == {404}
        page = (await client.get("/metrics")).text
    assert page.count("\n") == before
    assert "nobody-" not in page
