"""What callers may change, and where they may not."""

from __future__ import annotations

import asyncio
import base64
import logging
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest

from tidemill.protocol import messages, rpc
from tidemill.serving import ServerConfig

WriteModel = Callable[..., Path]


@pytest.mark.parametrize(
    ("settings", "control", "may_change"),
    [
        ({}, "explicit", True),
        ({"host": "::1"}, "explicit", True),
        ({"host": "localhost"}, "explicit", True),
        ({"host": "0.0.0.0"}, "none", False),
        ({"host": "example.org"}, "none", False),
        ({"host": "0.0.0.0", "model_control": "explicit", "settings_control": True}, "explicit", True),
        ({"model_control": "poll", "settings_control": False}, "poll", False),
    ],
)
def test_control_is_off_beyond_loopback_unless_configured(settings: Any, control: str, may_change: bool) -> None:
    config = ServerConfig(**settings)
    assert (config.effective_model_control, config.may_change_settings) == (control, may_change)


def test_names_of_models_may_stand_in_one_string() -> None:
    assert ServerConfig(load_models="a, b").load_models == ("a", "b")  # type: ignore[arg-type]


CHANGES: list[tuple[str, dict[str, Any], str, Any]] = [
    (
        "/v2/repository/models/two/load",
        {},
        "RepositoryModelLoad",
        messages.RepositoryModelLoadRequest(model_name="two"),
    ),
    (
        "/v2/repository/models/two/unload",
        {},
        "RepositoryModelUnload",
        messages.RepositoryModelUnloadRequest(model_name="two"),
    ),
    (
        "/v2/trace/setting",
        {"trace_rate": "2"},
        "TraceSetting",
        messages.TraceSettingRequest(settings={"trace_rate": {"value": ["2"]}}),
    ),
    (
        "/v2/logging",
        {"log_info": False},
        "LogSettings",
        messages.LogSettingsRequest(settings={"log_info": {"bool_param": False}}),
    ),
    (
        "/v2/systemsharedmemory/region/r/register",
        {"key": "k", "byte_size": 4},
        "SystemSharedMemoryRegister",
        messages.SystemSharedMemoryRegisterRequest(name="r", key="k", byte_size=4),
    ),
]


@pytest.mark.parametrize(("path", "body", "method", "request_"), CHANGES)
async def test_what_is_not_allowed_is_refused_on_both_faces(
    write_model: WriteModel, start_server: Any, connect: Any, path: str, body: Any, method: str, request_: Any
) -> None:
    server = await start_server(write_model("two"), model_control="none", settings_control=False)
    client: httpx.AsyncClient = connect(server)
    answer = await client.post(path, json=body)
    assert answer.status_code == 501
    assert "the operator can allow it" in answer.json()["error"]
    async with grpc.aio.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel:
        stub = channel.unary_unary(rpc.method_path(method), lambda message: message.SerializeToString())
        with pytest.raises(grpc.aio.AioRpcError, match="the operator can allow it") as caught:
            await stub(request_)
        assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
    # Reading is not changing.
    for readable in ("/v2/trace/setting", "/v2/logging", "/v2/models/two/ready"):
        assert (await client.get(readable)).status_code == 200


@pytest.mark.parametrize(
    ("origin", "status"), [(None, 200), ("same", 200), ("http://elsewhere.example", 401), ("null", 401)]
)
async def test_pages_of_other_origins_cannot_control(
    write_model: WriteModel, start_server: Any, connect: Any, origin: str | None, status: int
) -> None:
    server = await start_server(write_model("two"))
    client: httpx.AsyncClient = connect(server)
    headers = {} if origin is None else {"origin": str(client.base_url) if origin == "same" else origin}
    answer = await client.post("/v2/repository/models/two/load", headers=headers)
    assert answer.status_code == status


async def test_a_load_may_bring_its_files(write_model: WriteModel, start_server: Any, connect: Any) -> None:
    repository = write_model("value", k=1.0)
    other = write_model("value", repository=repository.parent / "other", k=7.0)
    server = await start_server(repository)
    client: httpx.AsyncClient = connect(server)
    files = {
        f"file:1/{path.name}": base64.b64encode(path.read_bytes()).decode()
        for path in (other / "value" / "1").iterdir()
    }
    x = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 1], "data": [0]}]}

    async def value() -> float:
        return float((await client.post("/v2/models/value/infer", json=x)).json()["outputs"][0]["data"][0])

    assert await value() == 1
    loaded = await client.post("/v2/repository/models/value/load", json={"parameters": {"config": "{}", **files}})
    assert (loaded.status_code, await value()) == (200, 7)
    refused = await client.post("/v2/repository/models/value/load", json={"parameters": files})
    assert (refused.status_code, await value()) == (400, 7)
    outside = {"config": "{}", "file:../x": ""}
    refused = await client.post("/v2/repository/models/value/load", json={"parameters": outside})
    assert (refused.status_code, await value()) == (400, 7)


async def test_a_load_that_fails_leaves_the_old_one_serving(
    write_model: WriteModel, start_server: Any, connect: Any
) -> None:
    repository = write_model("two")
    server = await start_server(repository)
    client: httpx.AsyncClient = connect(server)
    (repository / "two" / "model.yaml").write_text("nonsense: 1\n", encoding="utf-8")
    refused = await client.post("/v2/repository/models/two/load")
    assert refused.status_code >= 400
    assert "nonsense" in refused.json()["error"]
    x = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 2], "data": [1, 2]}]}
    assert (await client.post("/v2/models/two/infer", json=x)).status_code == 200


async def test_watched_repositories_take_up_what_is_new(
    write_model: WriteModel, start_server: Any, connect: Any
) -> None:
    repository = write_model("two")
    server = await start_server(repository, model_control="poll", poll_seconds=0.05)
    client: httpx.AsyncClient = connect(server)
    refused = await client.post("/v2/repository/models/two/load")
    assert refused.status_code == 503
    write_model("sum", repository=repository)
    await until(client, "/v2/models/sum/ready", 200)
    shutil.rmtree(repository / "two")
    await until(client, "/v2/models/two/ready", 503, 404)


async def until(client: httpx.AsyncClient, path: str, *statuses: int) -> None:
    async with asyncio.timeout(20):
        while (await client.get(path)).status_code not in statuses:
            await asyncio.sleep(0.02)


async def test_only_the_models_asked_for_are_loaded_at_the_start(
    all_models: Path, start_server: Any, connect: Any
) -> None:
    server = await start_server(all_models, load_models=("two",))
    client: httpx.AsyncClient = connect(server)
    assert (await client.get("/v2/health/ready")).status_code == 200
    assert (await client.get("/v2/models/sum/ready")).status_code == 503
    assert (await client.post("/v2/repository/models/sum/load")).status_code == 200
    assert (await client.get("/v2/models/sum/ready")).status_code == 200


async def test_a_request_leaves_a_trace_if_it_is_its_turn(
    write_model: WriteModel, start_server: Any, connect: Any, caplog: pytest.LogCaptureFixture
) -> None:
    server = await start_server(write_model("two"))
    client: httpx.AsyncClient = connect(server)
    settings = {"trace_level": ["TIMESTAMPS"], "trace_rate": "2", "trace_count": "2"}
    assert (await client.post("/v2/models/two/trace/setting", json=settings)).status_code == 200
    with caplog.at_level(logging.INFO, "tidemill.trace"):
        for number in range(8):
            x = {"name": "x", "datatype": "FP32", "shape": [1, 2], "data": [1, 2]}
            await client.post("/v2/models/two/infer", json={"id": f"r{number}", "inputs": [x]})
    told = [record.getMessage().split()[2] for record in caplog.records if record.name == "tidemill.trace"]
    assert told == ["request_id=r1", "request_id=r3"]
