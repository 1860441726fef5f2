"""What happens to requests when there are too many, when they take too long, and when their callers leave."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import httpx
import numpy as np
import pytest

from tidemill.protocol import messages, rpc
from tidemill.serving import Server

WriteModel = Callable[..., Path]

ONE_BY_ONE = {"max_batch_size": 0}


def body(turns: int, **parameters: Any) -> dict[str, Any]:
    item = {"name": "x", "shape": [1, 1], "datatype": "FP32", "data": [turns]}
    return {"inputs": [item], "parameters": parameters}


async def eventually(condition: Callable[[], bool], seconds: float = 20) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.002)


def metric(server: Server, name: str, **labels: str) -> float:
    """The sum of the series of the slow model with this name and these labels, as a scrape would show them."""
    wanted = [f'{key}="{value}"' for key, value in {"model": "slow", **labels}.items()]
    lines = server.service.metrics.expose().decode().splitlines()
    chosen = [line for line in lines if line.startswith(name + "{") and all(label in line for label in wanted)]
    return sum(float(line.rpartition(" ")[2]) for line in chosen)


def queued(server: Server) -> int:
    return int(metric(server, "tidemill_queue_depth"))


def counts(server: Server, code: str) -> int:
    return int(metric(server, "tidemill_requests_total", code=code))


def runs(server: Server) -> int:
    return int(metric(server, "nv_inference_exec_count"))


async def test_a_timeout_fires_while_another_request_runs(
    write_model: WriteModel, start_server: Any, connect: Any
) -> None:
    server = await start_server(write_model("slow", config=ONE_BY_ONE))
    client: httpx.AsyncClient = connect(server)
    running = asyncio.create_task(client.post("/v2/models/slow/infer", json=body(3_000)))
    await eventually(lambda: server.service.inflight == 1 and queued(server) == 0)
    late = await client.post("/v2/models/slow/infer", json=body(0, timeout=20_000))
    assert not running.done()
    assert (late.status_code, list(late.json())) == (504, ["error"])
    assert (await running).status_code == 200
    assert (counts(server, "deadline_exceeded"), counts(server, "ok"), runs(server)) == (1, 1, 1)


async def test_requests_of_callers_that_left_are_never_run(
    write_model: WriteModel, start_server: Any, connect: Any
) -> None:
    server = await start_server(write_model("slow", config=ONE_BY_ONE))
    client: httpx.AsyncClient = connect(server)
    url = f"http://127.0.0.1:{server.http_port}/v2/models/slow/infer"
    running = asyncio.create_task(client.post("/v2/models/slow/infer", json=body(3_000)))
    await eventually(lambda: server.service.inflight == 1 and queued(server) == 0)

    async with httpx.AsyncClient() as leaving, grpc.aio.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel:
        http = [asyncio.create_task(leaving.post(url, json=body(1))) for _ in range(4)]
        await eventually(lambda: queued(server) == 4)
        request = messages.ModelInferRequest(model_name="slow", raw_input_contents=[np.float32(1).tobytes()])
        request.inputs.add(name="x", datatype="FP32", shape=[1, 1])
        calls = [channel.unary_unary(rpc.method_path("ModelInfer"))(request.SerializeToString()) for _ in range(4)]
        await eventually(lambda: queued(server) == 8)
        for task in (*http, *calls):
            task.cancel()
        await eventually(lambda: queued(server) == 0)
    kept = await client.post("/v2/models/slow/infer", json=body(2))
    assert kept.json()["outputs"][0]["data"] == [2]
    await running
    await eventually(lambda: counts(server, "cancelled") == 8)
    assert (counts(server, "ok"), runs(server)) == (2, 2)


async def test_requests_over_the_limit_are_refused_at_once(
    write_model: WriteModel, start_server: Any, connect: Any
) -> None:
    server = await start_server(write_model("slow", config=ONE_BY_ONE), max_inflight=2)
    client: httpx.AsyncClient = connect(server)
    tasks = [asyncio.create_task(client.post("/v2/models/slow/infer", json=body(1_000))) for _ in range(2)]
    await eventually(lambda: server.service.inflight == 2)
    refused = await client.post("/v2/models/slow/infer", json=body(0))
    assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
    assert "max_inflight" in refused.json()["error"]
    assert [(await task).status_code for task in tasks] == [200, 200]
    assert counts(server, "unavailable") == 1


@pytest.mark.parametrize("strict", [True, False])
async def test_readiness_is_strict_unless_told_otherwise(
    tmp_path: Path, write_model: WriteModel, start_server: Any, connect: Any, strict: bool
) -> None:
    root = write_model("two")
    (root / "bad" / "1").mkdir(parents=True)
    (root / "bad" / "1" / "bundle.json").write_text("{}")
    empty = tmp_path / "empty"
    empty.mkdir()
    for repository, part in ((root, "model 'bad' version 1 is FAILED"), (empty, "no models")):
        server = await start_server(repository, load=False, strict_readiness=strict)
        client: httpx.AsyncClient = connect(server)
        loading = await client.get("/v2/health/ready")
        assert (loading.status_code, loading.json()["ready"]) == (503, False)
        assert (await client.get("/v2/health/live")).json() == {"live": True}
        await server.load()
        ready = await client.get("/v2/health/ready")
        assert ready.status_code == (503 if strict else 200)
        assert strict is (part in ready.json().get("error", ""))
        if repository is root:
            assert (await client.get("/v2/models/two/ready")).status_code == 200
            assert (await client.get("/v2/models/bad/ready")).status_code == 503
