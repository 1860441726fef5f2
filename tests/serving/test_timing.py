"""Where a request's time went, told on both faces and both lanes."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable

import httpx
import numpy as np
import pytest
import tritonclient.grpc.aio as triton

from tidemill.serving import Server

pytestmark = pytest.mark.asyncio(loop_scope="module")
BODY = {
    "inputs": [{"name": "x", "shape": [2, 2], "datatype": "FP32", "data": [1, 2, 3, 4]}],
    "parameters": {"tidemill_timing": True},
}


async def test_rest_tells_queue_run_and_rows(
    shared_server: Server, connect: Callable[[Server], httpx.AsyncClient]
) -> None:
    client = connect(shared_server)
    answers = await asyncio.gather(*(client.post("/v2/models/two/infer", json=BODY) for _ in range(4)))
    for answer in answers:
        told = answer.json()["parameters"]
        assert told["batch_size"] >= 2
        assert told["queue_us"] >= 0
        assert told["infer_us"] > 0
        parts = dict(re.findall(r"(\w+);dur=([\d.]+)", answer.headers["server-timing"]))
        assert float(parts["total"]) >= float(parts["queue"]) + float(parts["infer"])
        assert float(parts["infer"]) == pytest.approx(told["infer_us"] / 1e3, abs=1e-2)
    silent = await client.post("/v2/models/two/infer", json={"inputs": BODY["inputs"]})
    assert "parameters" not in silent.json()


async def test_grpc_tells_the_same(shared_server: Server) -> None:
    given = triton.InferInput("x", [2, 2], "FP32")
    given.set_data_from_numpy(np.ones((2, 2), np.float32))
    async with triton.InferenceServerClient(f"127.0.0.1:{shared_server.grpc_port}") as client:
        answer = (await client.infer("two", [given], parameters={"tidemill_timing": True})).get_response()
    told = {name: value.int64_param for name, value in answer.parameters.items()}
    assert told["batch_size"] >= 2
    assert told["infer_us"] > 0
    assert "queue_us" in told
