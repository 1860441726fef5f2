"""Every way in which a request can end is told and counted alike on both faces (B32)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import grpc
import httpx
import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tidemill.protocol import messages, rpc
from tidemill.serving import Server

WriteModel = Callable[..., Path]
Counts = dict[tuple[str, ...], float]


def tensor(datatype: str, shape: list[int], data: list[Any]) -> dict[str, Any]:
    return {"name": "x", "datatype": datatype, "shape": shape, "data": data}


def message(model: str, given: dict[str, Any]) -> bytes:
    sent = messages.ModelInferRequest(model_name=model)
    sent.inputs.add(name="x", datatype=given["datatype"], shape=given["shape"])
    dtype = {"FP32": np.float32, "INT64": np.int64}[given["datatype"]]
    sent.raw_input_contents.append(np.array(given["data"], dtype).tobytes())
    for name, value in given.get("parameters", {}).items():
        sent.parameters[name].int64_param = value
    return bytes(sent.SerializeToString())


async def counts(client: httpx.AsyncClient) -> Counts:
    page = (await client.get("/metrics")).text
    wanted = ("tidemill_requests_total", "nv_inference_request_success", "nv_inference_request_failure")
    return {
        (sample.name.removesuffix("_total"), *(f"{k}={v}" for k, v in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
        if sample.name.removesuffix("_total") in [name.removesuffix("_total") for name in wanted]
    }


def moved(before: Counts, after: Counts) -> dict[tuple[str, ...], float]:
    return {key: value - before[key] for key, value in after.items() if value != before[key]}


ENDS: list[tuple[str, str, Any, int, str, str, str]] = [
    ("gather", "ok", tensor("INT64", [1], [1]), 200, "OK", "gather", ""),
    ("gather", "invalid_argument", None, 400, "INVALID_ARGUMENT", "gather", "OTHER"),
    ("nobody", "not_found", tensor("INT64", [1], [1]), 404, "NOT_FOUND", "", ""),
    ("gather", "invalid_argument", tensor("INT64", [1, 1], [1]), 400, "INVALID_ARGUMENT", "gather", "OTHER"),
    ("gather", "unprocessable", tensor("INT64", [1], [4]), 422, "INVALID_ARGUMENT", "gather", "BACKEND"),
    (
        "slow",
        "deadline_exceeded",
        {**tensor("FP32", [1, 1], [500]), "parameters": {"timeout": 10_000}},
        504,
        "DEADLINE_EXCEEDED",
        "slow",
        "REJECTED",
    ),
]


@pytest.mark.parametrize("face", ["rest", "grpc"])
@pytest.mark.parametrize(("model", "code", "given", "status", "name", "label", "reason"), ENDS)
async def test_b32_each_end_moves_one_counter_by_one(
    all_models: Path,
    start_server: Any,
    connect: Any,
    face: str,
    model: str,
    code: str,
    given: Any,
    status: int,
    name: str,
    label: str,
    reason: str,
) -> None:
    server: Server = await start_server(all_models, load_models=("gather", "slow"))
    client: httpx.AsyncClient = connect(server)
    before = await counts(client)
    if face == "rest":
        parameters = given.pop("parameters", {}) if given and "parameters" in (given := dict(given)) else {}
        body = b"{" if given is None else None
        json = None if given is None else {"inputs": [given], "parameters": parameters}
        answer = await client.post(f"/v2/models/{model}/infer", content=body, json=json)
        assert answer.status_code == status
    else:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel:
            data = b"\xff\xff\xff" if given is None else message(model, given)
            call = channel.unary_unary(rpc.method_path("ModelInfer"))(data)
            assert (await call.code()).name == name
        # A message that is none names no model.
        label, reason = ("", "") if given is None else (label, reason)
    version = "version=1" if label else "version="
    expected = {("tidemill_requests", f"code={code}", f"model={label}", f"protocol={face}", version): 1.0}
    if code == "ok":
        expected["nv_inference_request_success", f"model={label}", version] = 1.0
    elif label:
        expected["nv_inference_request_failure", f"model={label}", f"reason={reason}", version] = 1.0
    assert moved(before, await counts(client)) == expected


@pytest.mark.parametrize("face", ["rest", "grpc"])
async def test_b32_a_refusal_under_load_and_a_client_that_leaves(
    all_models: Path, start_server: Any, connect: Any, face: str
) -> None:
    server: Server = await start_server(all_models, load_models=("slow",), max_inflight=1)
    client: httpx.AsyncClient = connect(server)
    before = await counts(client)
    given = tensor("FP32", [1, 1], [300])
    async with grpc.aio.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel:
        stub = channel.unary_unary(rpc.method_path("ModelInfer"))

        async def ask() -> str:
            if face == "rest":
                return str((await client.post("/v2/models/slow/infer", json={"inputs": [given]})).status_code)
            try:
                await stub(message("slow", given))
            except grpc.aio.AioRpcError as error:
                return str(error.code().name)
            return "OK"

        running = asyncio.create_task(ask())
        async with asyncio.timeout(10):
            while not server.service.inflight:
                await asyncio.sleep(0.001)
        assert await ask() in ("503", "UNAVAILABLE")
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
        async with asyncio.timeout(10):
            while server.service.inflight:
                await asyncio.sleep(0.001)
    labels = ("model=slow", f"protocol={face}", "version=1")
    assert moved(before, await counts(client)) == {
        ("tidemill_requests", "code=unavailable", *labels): 1.0,
        ("tidemill_requests", "code=cancelled", *labels): 1.0,
        ("nv_inference_request_failure", "model=slow", "reason=REJECTED", "version=1"): 1.0,
        ("nv_inference_request_failure", "model=slow", "reason=CANCELED", "version=1"): 1.0,
    }


async def test_b32_counters_outlive_unloading_and_loading(
    write_model: WriteModel, start_server: Any, connect: Any
) -> None:
    server: Server = await start_server(write_model("gather"))
    client: httpx.AsyncClient = connect(server)
    body = {"inputs": [tensor("INT64", [8], list(range(4)) * 2)]}
    await client.post("/v2/models/gather/infer", json=body)
    before = await counts(client)
    await client.post("/v2/repository/models/gather/unload")
    assert moved(before, await counts(client)) == {}
    await client.post("/v2/repository/models/gather/load")
    await client.post("/v2/models/gather/infer", json=body)
    changed = moved(before, await counts(client))
    assert set(changed.values()) == {1.0}
    (statistics,) = (await client.get("/v2/models/gather/stats")).json()["model_stats"]
    assert (statistics["inference_count"], statistics["execution_count"]) == (16, 2)
    assert [batch["batch_size"] for batch in statistics["batch_stats"]] == [8]
