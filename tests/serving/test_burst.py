"""Requests of one turn of the loop, answered together: equal answers, equal counts, faults for the guilty only."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from tidemill.serving.run import Server

COUNT = 24


def asks(values: list[int], **more: Any) -> dict[str, Any]:
    return {"inputs": [{"name": "x", "datatype": "INT64", "shape": [len(values)], "data": values}], **more}


async def ask_all(client: httpx.AsyncClient, bodies: list[dict[str, Any]]) -> list[httpx.Response]:
    headers = {"accept-encoding": "identity"}
    posts = (client.post("/v2/models/gather/infer", json=body, headers=headers) for body in bodies)
    return await asyncio.gather(*posts)


def statistics(server: Server) -> dict[str, Any]:
    (found,) = server.service.statistics("gather")
    return found


@pytest.fixture
async def server(write_model: Callable[[str], Path], start_server: Callable[..., Awaitable[Server]]) -> Server:
    return await start_server(write_model("gather"), grpc_fast_lane=True)


async def test_each_gets_its_own_answer_and_all_are_counted(
    server: Server, connect: Callable[[Server], httpx.AsyncClient]
):
    client = connect(server)
    expected = (await client.post("/v2/models/gather/infer", json=asks([0, 1, 2]))).json()["outputs"][0]["data"]
    for _ in range(5):
        answers = await ask_all(client, [asks([place % 3]) for place in range(COUNT)])
        assert [answer.json()["outputs"][0]["data"] for answer in answers] == [[expected[n % 3]] for n in range(COUNT)]
    found = statistics(server)
    assert found["inference_stats"]["success"]["count"] == 5 * COUNT + 1
    assert found["inference_stats"]["queue"]["count"] == 5 * COUNT + 1
    assert found["inference_count"] == 5 * COUNT + 3
    assert found["execution_count"] < 5 * COUNT
    assert server.service.inflight == 0


async def test_only_the_guilty_one_fails(server: Server, connect: Callable[[Server], httpx.AsyncClient]):
    client = connect(server)
    for _ in range(3):
        await ask_all(client, [asks([1])] * COUNT)
    answers = await ask_all(client, [asks([99 if place == 7 else 1]) for place in range(COUNT)])
    assert [place for place, answer in enumerate(answers) if answer.status_code != 200] == [7]
    assert statistics(server)["inference_stats"]["fail"]["count"] == 1


async def test_a_model_that_is_taken_away_is_not_asked(server: Server, connect: Callable[[Server], httpx.AsyncClient]):
    client = connect(server)
    for _ in range(3):
        await ask_all(client, [asks([1])] * COUNT)
    await client.post("/v2/repository/models/gather/unload")
    assert {answer.status_code for answer in await ask_all(client, [asks([1])] * COUNT)} == {503}
