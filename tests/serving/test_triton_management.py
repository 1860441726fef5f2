"""The four clients of tritonclient: everything but inference."""

from __future__ import annotations

from collections.abc import AsyncIterator
from multiprocessing.shared_memory import SharedMemory
from typing import Any

import numpy as np
import pytest
import pytest_asyncio
from triton import CLIENTS, Triton, open_triton
from tritonclient.utils import InferenceServerException

from tidemill.serving import Server

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.parametrize("client", CLIENTS, indirect=True)]

X = np.array([[1, 2]], np.float32)
HTTP = [kind for kind in CLIENTS if kind.startswith("http")]


@pytest_asyncio.fixture(loop_scope="module")
async def client(request: pytest.FixtureRequest, open_server: Server) -> AsyncIterator[Triton]:
    async with open_triton(request.param, open_server) as client:
        yield client


async def test_health(client: Triton) -> None:
    assert await client("is_server_live")
    assert await client("is_server_ready")
    assert await client("is_model_ready", "two")
    assert await client("is_model_ready", "two", "1")
    for unknown in (("nobody",), ("two", "9")):
        if client.is_http:
            assert not await client("is_model_ready", *unknown)
        else:
            with pytest.raises(InferenceServerException, match="NOT_FOUND"):
                await client("is_model_ready", *unknown)


async def test_metadata(client: Triton) -> None:
    server = await client("get_server_metadata")
    assert server["name"] == "tidemill"
    assert {"classification", "model_repository", "statistics", "system_shared_memory"} <= set(server["extensions"])
    for version in ("", "1"):
        model = await client("get_model_metadata", "two", version)
        assert (model["name"], model["versions"], model["platform"]) == ("two", ["1"], "onnxruntime_onnx")
        assert [(spec["name"], spec["datatype"]) for spec in model["outputs"]] == [("y", "FP32"), ("z", "FP32")]
        assert [int(dim) for dim in model["inputs"][0]["shape"]] == [-1, 2]
    with pytest.raises(InferenceServerException, match="unknown model 'nobody'"):
        await client("get_model_metadata", "nobody")


async def test_config(client: Triton) -> None:
    answer = await client("get_model_config", "two")
    config = answer if client.is_http else answer["config"]
    assert (config["name"], config["platform"], config["backend"]) == ("two", "onnxruntime_onnx", "onnxruntime")
    assert config["max_batch_size"] > 0
    assert (config["input"][0]["name"], config["input"][0]["data_type"]) == ("x", "TYPE_FP32")
    assert [int(dim) for dim in config["input"][0]["dims"]] == [2]
    assert "dynamic_batching" in config
    assert config["version_policy"]
    with pytest.raises(InferenceServerException, match="unknown model"):
        await client("get_model_config", "nobody")


async def test_index(client: Triton) -> None:
    answer = await client("get_model_repository_index")
    entries = answer if client.is_http else answer["models"]
    (two,) = [entry for entry in entries if entry["name"] == "two"]
    assert (two["version"], two["state"]) == ("1", "READY")


async def test_load_and_unload(client: Triton) -> None:
    await client("load_model", "mean")
    assert await client("is_model_ready", "mean")
    await client("unload_model", "mean")
    await client("unload_model", "mean", unload_dependents=True)
    assert not await client("is_model_ready", "mean")
    with pytest.raises(InferenceServerException):
        await client.infer("mean", client.input("x", X, "FP32"))
    await client("load_model", "mean")
    assert (await client.infer("mean", client.input("x", X, "FP32"))).as_numpy("y").tolist() == [[0, 0]]
    with pytest.raises(InferenceServerException):
        await client("load_model", "nobody")


async def test_statistics(client: Triton) -> None:
    async def found(*name: str) -> Any:
        answer = await client("get_inference_statistics", *name)
        return answer["model_stats"]

    rows = np.zeros((3, 2), np.float32)
    (before,) = await found("two", "1")
    await client.infer("two", client.input("x", rows, "FP32"))
    with pytest.raises(InferenceServerException):
        await client.infer("two", client.input("x", rows[0], "FP32"))
    (after,) = await found("two")

    def moved(*path: str) -> int:
        values = []
        for value in (after, before):
            for key in path:
                value = value.get(key, {} if key != path[-1] else 0)
            values.append(int(value))
        return values[0] - values[1]

    assert (moved("inference_count"), moved("execution_count")) == (3, 1)
    for stage in ("success", "fail", "queue", "compute_input", "compute_infer", "compute_output"):
        assert moved("inference_stats", stage, "count") == 1, stage
    assert moved("inference_stats", "success", "ns") > moved("inference_stats", "compute_infer", "ns") > 0
    assert int(after["last_inference"]) > 1.6e12
    (batch,) = [batch for batch in after["batch_stats"] if int(batch["batch_size"]) == 3]
    assert int(batch["compute_infer"]["count"]) >= 1
    everything = {one["name"] for one in await found()}
    assert {"two", "identity"} <= everything
    with pytest.raises(InferenceServerException, match="unknown model"):
        await found("nobody")


def setting(client: Triton, answer: Any, name: str) -> Any:
    if client.is_http:
        return answer[name]
    values = answer["settings"][name]
    values = values.get("value", []) if "value" in values or not values else next(iter(values.values()))
    return values if name == "trace_level" or not isinstance(values, list) else values[0]


async def test_trace_settings(client: Triton) -> None:
    assert setting(client, await client("get_trace_settings"), "trace_level") == ["OFF"]
    changes = {"trace_level": ["TIMESTAMPS"], "trace_rate": "1", "trace_count": "2"}
    answer = await client("update_trace_settings", "two", changes)
    assert setting(client, answer, "trace_level") == ["TIMESTAMPS"]
    found = await client("get_trace_settings", "two")
    names = ("trace_rate", "trace_count", "trace_mode")
    assert [setting(client, found, name) for name in names] == ["1", "2", "triton"]
    assert setting(client, await client("get_trace_settings"), "trace_level") == ["OFF"]
    cleared: dict[str, Any] = dict.fromkeys(changes)
    assert setting(client, await client("update_trace_settings", "two", cleared), "trace_rate") == "1000"
    wrong_settings: list[dict[str, Any]] = [{"trace_level": ["LOUD"]}, {"trace_file": "/tmp/x"}, {"a": "b"}]
    for model, wrong in (("nobody", {}), *(("", wrong) for wrong in wrong_settings)):
        with pytest.raises(InferenceServerException):
            await client("update_trace_settings", model, wrong)


async def test_log_settings(client: Triton) -> None:
    before = await client("get_log_settings")
    assert setting(client, before, "log_info") is True
    after = await client("update_log_settings", {"log_verbose_level": 1, "log_format": "ISO8601"})
    assert (setting(client, after, "log_verbose_level"), setting(client, after, "log_format")) == (1, "ISO8601")
    await client("update_log_settings", {"log_verbose_level": 0, "log_format": "default"})
    wrong_settings: list[dict[str, Any]] = [{"log_file": "/tmp/x"}, {"log_format": "x"}, {"nothing": True}]
    if client.is_http:  # the other clients make a boolean of it
        wrong_settings.append({"log_info": 3})
    for wrong in wrong_settings:
        with pytest.raises(InferenceServerException):
            await client("update_log_settings", wrong)


async def test_system_shared_memory(client: Triton) -> None:
    memory = SharedMemory(create=True, size=64)
    try:
        await client("unregister_system_shared_memory")
        await client("unregister_cuda_shared_memory")
        await client("register_system_shared_memory", "in", memory.name, 16, offset=8)
        with pytest.raises(InferenceServerException, match="registered already"):
            await client("register_system_shared_memory", "in", memory.name, 16)
        await client("register_system_shared_memory", "out", f"/{memory.name}", 32, offset=32)
        await check_status(client, memory.name)
        memory.buf[12:20] = X.tobytes()
        given = client.module.InferInput("x", [1, 2], "FP32")
        given.set_shared_memory("in", 8, offset=4)
        wanted = client.module.InferRequestedOutput("y")
        wanted.set_shared_memory("out", 8, offset=8)
        answer = await client.infer("two", given, outputs=[wanted, client.output("z")])
        assert np.frombuffer(memory.buf[40:48], np.float32).tolist() == [2, 3]
        assert answer.as_numpy("z").tolist() == [[2, 4]]
        assert answer.get_output("y") is not None
        await client("unregister_system_shared_memory", "in")
        with pytest.raises(InferenceServerException, match="unable to find shared memory region 'in'"):
            await client.infer("two", given)
    finally:
        await client("unregister_system_shared_memory")
        memory.close()
        memory.unlink()


async def check_status(client: Triton, name: str) -> None:
    answer = await client("get_system_shared_memory_status")
    regions = answer if client.is_http else list(answer["regions"].values())
    found = {region["name"]: (region["key"], int(region["offset"]), int(region["byte_size"])) for region in regions}
    assert found == {"in": (name, 8, 16), "out": (f"/{name}", 32, 32)}
    one = await client("get_system_shared_memory_status", "in")
    assert [region["name"] for region in (one if client.is_http else one["regions"].values())] == ["in"]
    with pytest.raises(InferenceServerException):
        await client("get_system_shared_memory_status", "nobody")


async def test_cuda_shared_memory_says_that_it_is_not_offered(client: Triton) -> None:
    with pytest.raises(InferenceServerException, match="offers no CUDA shared memory"):
        await client("register_cuda_shared_memory", "r", b"aGFuZGxl", 0, 8)
    assert not await client("get_cuda_shared_memory_status")
