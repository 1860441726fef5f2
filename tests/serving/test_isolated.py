"""What callers see when the process of a model is killed."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from asking import asking


async def test_only_the_requests_of_a_killed_model_fail_and_it_is_ready_again(
    write_model: Callable[..., Path], start_server: Any, connect: Any
) -> None:
    write_model("slow", config={"isolation": "process"})
    server = await start_server(write_model("value", "v", k=3))
    client = connect(server)
    async with asking("rest", server) as rest, asking("grpc", server) as rpc, asyncio.timeout(60):
        running = [asyncio.create_task(ask("slow", np.full((1, 1), 1e6, np.float32))) for ask in (rest, rpc)]
        while server.service.inflight < 2:
            await asyncio.sleep(0.001)
        os.kill(server.service.find("slow").running.instance.pid, signal.SIGKILL)
        failed = [await task for task in running]
        assert [answer.code for answer in failed] == ["503", "UNAVAILABLE"]
        assert all("SIGKILL" in answer.fault for answer in failed)
        assert (await client.get("/v2/models/slow/ready")).status_code == 503
        for ask in (rest, rpc):
            assert (await ask("v", np.ones((1, 1), np.float32))).outputs["y"].item() == 3
        while (await client.get("/v2/models/slow/ready")).status_code != 200:
            await asyncio.sleep(0.01)
        for ask in (rest, rpc):
            assert (await ask("slow", np.ones((1, 1), np.float32))).outputs["y"].item() == 1


async def test_a_run_that_does_not_end_is_told_of_until_it_does(
    write_model: Callable[..., Path], start_server: Any, connect: Any
) -> None:
    server = await start_server(write_model("slow", config={"isolation": "process"}), stuck_after_seconds=0.05)
    client = connect(server)
    async with asking("rest", server) as ask, asyncio.timeout(60):
        await ask("slow", np.ones((1, 1), np.float32))
        child = server.service.find("slow").running.instance.pid
        os.kill(child, signal.SIGSTOP)
        try:
            running = asyncio.create_task(ask("slow", np.ones((1, 1), np.float32)))
            while (ready := await client.get("/v2/health/ready")).status_code == 200:
                await asyncio.sleep(0.001)
            assert "model 'slow' version 1 is stuck" in ready.text
            assert (await client.get("/v2/models/slow/ready")).status_code == 503
            index = (await client.post("/v2/repository/index")).json()
            assert "0.05 s (stuck_after_seconds)" in index[0]["reason"]
            assert (await client.get("/v2/health/live")).status_code == 200
            page = (await client.get("/metrics")).text
            assert 'tidemill_instances_busy{model="slow",version="1"} 1.0' in page
            assert _value(page, 'tidemill_longest_run_seconds{model="slow",version="1"}') > 0.05
        finally:
            os.kill(child, signal.SIGCONT)
        assert (await running).outputs["y"].item() == 1
        while (await client.get("/v2/health/ready")).status_code != 200:
            await asyncio.sleep(0.001)
        assert not (await client.post("/v2/repository/index")).json()[0].get("reason")
        page = (await client.get("/metrics")).text
        assert _value(page, 'tidemill_longest_run_seconds{model="slow",version="1"}') == 0


def _value(page: str, series: str) -> float:
    line = next(line for line in page.splitlines() if line.startswith(series))
    return float(line.rpartition(" ")[2])
