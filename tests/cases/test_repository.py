"""What users of other servers reported of reloading and readiness, by the numbers of those reports, over both faces."""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import httpx
import numpy as np
import pytest
from asking import Told, asking
from grpc_health.v1 import health_pb2, health_pb2_grpc
from reloading import WriteModel, put_version
from zoo_server import serving

from tidemill.protocol import messages, rpc
from tidemill.serving import Server, ServerConfig

X = np.zeros((1, 1), np.float32)
StartServer = Callable[..., Awaitable[Server]]


@pytest.fixture
async def start() -> AsyncIterator[StartServer]:
    """Starts servers; their models are not loaded yet."""
    running: list[Server] = []

    async def start(root: Path, **settings: Any) -> Server:
        running.append(Server([root], ServerConfig(http_port=0, grpc_port=0, **settings)))
        await running[-1].start()
        return running[-1]

    yield start
    for server in running:
        await server.stop()


@asynccontextmanager
async def resting(server: Server) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{server.http_port}", timeout=60) as client:
        yield client


async def test_b15_no_request_fails_over_twenty_reloads(write_model: WriteModel, start: StartServer) -> None:
    root = write_model("value", "v", k=1)
    server = await start(root)
    await server.load()
    told: list[Told] = []
    reloading = True

    async def caller(face: str) -> None:
        async with asking(face, server) as ask:
            while reloading:
                told.append(await ask("v", X))

    callers = [asyncio.create_task(caller(face)) for face in ("rest", "grpc") * 10]
    async with resting(server) as client, asking("rest", server) as ask:
        for turn in range(20):
            value = 2 - turn % 2
            put_version(write_model, root, 1, k=value)
            assert (await client.post("/v2/repository/models/v/load")).status_code == 200
            # What is asked after the load has returned is answered by what was loaded.
            assert (await ask("v", X)).outputs["y"].item() == value
    reloading = False
    await asyncio.gather(*callers)
    assert len(told) > 100
    assert {answer.code for answer in told} == {"OK"}
    assert {answer.outputs["y"].item() for answer in told} == {1, 2}


async def test_b15_unloading_answers_what_runs_and_refuses_the_rest(
    write_model: WriteModel, start: StartServer
) -> None:
    server = await start(write_model("slow", config={"max_batch_size": 0}))
    await server.load()
    async with asking("rest", server) as rest, asking("grpc", server) as rpcs, resting(server) as client:
        running = [asyncio.create_task(ask("slow", X + 2_000)) for ask in (rest, rpcs)]
        async with asyncio.timeout(20):
            while server.service.inflight < 2:
                await asyncio.sleep(0.001)
        unloading = asyncio.create_task(client.post("/v2/repository/models/slow/unload"))
        async with asyncio.timeout(20):
            while (await client.post("/v2/repository/index")).json()[0]["state"] != "UNLOADING":
                await asyncio.sleep(0)
        refused = await asyncio.gather(rest("slow", X), rpcs("slow", X))
        assert [answer.code for answer in refused] == ["503", "UNAVAILABLE"]
        assert not any(task.done() for task in running)
        assert (await unloading).status_code == 200
        assert [(await task).outputs["y"].item() for task in running] == [2_000] * 2
        (entry,) = (await client.post("/v2/repository/index")).json()
    assert (entry["state"], entry["reason"]) == ("UNAVAILABLE", "unloaded")


def resident(pid: str) -> int:
    """Bytes of memory that a process holds."""
    return int(re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())[1]) * 1024  # type: ignore[index]


async def test_b15_a_storm_ends_in_the_state_of_the_last_call_and_keeps_no_memory(write_model: WriteModel) -> None:
    root = write_model("value", "v", k=1)
    with serving(root) as addresses:
        async with (
            httpx.AsyncClient(base_url=f"http://{addresses['http']}", timeout=60) as client,
            grpc.aio.insecure_channel(addresses["grpc"]) as channel,
        ):
            await storm(client, channel)
            for action, state, status in (("unload", "UNAVAILABLE", 503), ("load", "READY", 200)):
                assert (await client.post(f"/v2/repository/models/v/{action}")).status_code == 200
                assert (await client.post("/v2/repository/index")).json()[0]["state"] == state
                assert (await client.get("/v2/models/v/ready")).status_code == status
            held = []
            for turn in range(50):
                put_version(write_model, root, 1, k=turn)
                assert (await client.post("/v2/repository/models/v/load")).status_code == 200
                if turn in (4, 49):
                    held.append(resident(addresses["pid"]))
        assert held[1] < held[0] + (24 << 20)


async def storm(client: httpx.AsyncClient, channel: Any) -> None:
    """A hundred loads and unloads in any order from four callers, half of them over gRPC."""
    requests = {"Load": messages.RepositoryModelLoadRequest, "Unload": messages.RepositoryModelUnloadRequest}

    async def caller(number: int) -> None:
        dice = random.Random(number)
        for _ in range(25):
            action = dice.choice(["Load", "Unload"])
            if number % 2:
                answer = await client.post(f"/v2/repository/models/v/{action.lower()}")
                assert answer.status_code == 200, answer.text
            else:
                method = channel.unary_unary(rpc.method_path(f"RepositoryModel{action}"))
                await method(requests[action](model_name="v").SerializeToString())

    await asyncio.gather(*map(caller, range(4)))


class Probe:
    """Asks both faces whether the server and a model are ready, and compares what they say."""

    def __init__(self, client: httpx.AsyncClient, channel: Any) -> None:
        self.client, self.channel = client, channel
        self.health = health_pb2_grpc.HealthStub(channel)

    async def ready(self, model: str = "") -> bool:
        """What all agree on; asked again if the state changed meanwhile."""
        assert (await self.client.get("/v2/health/live")).status_code == 200
        while True:
            before, others, after = await self._rest(model), await self._rpc(model), await self._rest(model)
            if before == after:
                assert others == {before}
                return before

    async def _rest(self, model: str) -> bool:
        answer = await self.client.get(f"/v2/models/{model}/ready" if model else "/v2/health/ready")
        assert answer.status_code in (200, 503)
        return answer.status_code == 200

    async def _rpc(self, model: str) -> set[bool]:
        kind = "Model" if model else "Server"
        asked = messages.ModelReadyRequest(name=model) if model else messages.ServerReadyRequest()
        raw = await self.channel.unary_unary(rpc.method_path(f"{kind}Ready"))(asked.SerializeToString())
        told = messages.ModelReadyResponse if model else messages.ServerReadyResponse
        checked = await self.health.Check(health_pb2.HealthCheckRequest(service=model))
        return {told.FromString(raw).ready, checked.status == health_pb2.HealthCheckResponse.SERVING}


@asynccontextmanager
async def probing(server: Server) -> AsyncIterator[Probe]:
    async with resting(server) as client, grpc.aio.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel:
        yield Probe(client, channel)


SLOWLY = {"max_batch_size": 0, "warmup": [{"x": [3_000_000, 1]}] * 7}
"""A load that takes a good part of a second: a model is warmed before it is ready."""


async def test_b17_ready_only_once_the_slowest_model_is(write_model: WriteModel, start: StartServer) -> None:
    write_model("two")
    server = await start(write_model("value", "late", config=SLOWLY))
    async with probing(server) as probe:
        loading = asyncio.create_task(server.load())
        while await probe.ready("two") is False:
            assert not await probe.ready()
        polls = 0
        while not loading.done():
            ready, late = await probe.ready(), await probe.ready("late")
            assert late or not ready
            polls += not late
            await asyncio.sleep(0)
        await loading
        assert polls
        assert await probe.ready()
        assert await probe.ready("late")


def corrupt(root: Path) -> Path:
    """A repository with a model that is none."""
    (root / "bad" / "1").mkdir(parents=True)
    (root / "bad" / "1" / "model.onnx").write_bytes(b"no model")
    return root


@pytest.mark.parametrize(
    ("models", "strict", "ready"),
    [
        (("bad",), True, False),
        (("bad",), False, True),
        ((), True, False),
        ((), False, True),
        (("two", "bad"), True, False),
        (("two", "bad"), False, True),
        (("two",), True, True),
    ],
)
async def test_b17_what_cannot_be_served_makes_a_strict_server_unready(
    tmp_path: Path, write_model: WriteModel, start: StartServer, models: tuple[str, ...], strict: bool, ready: bool
) -> None:
    root = tmp_path / "models"
    root.mkdir()
    if "two" in models:
        write_model("two")
    if "bad" in models:
        corrupt(root)
    server = await start(root, strict_readiness=strict)
    async with probing(server) as probe:
        assert not await probe.ready()
        await server.load()
        assert await probe.ready() is ready
        for model in models:
            assert await probe.ready(model) is (model == "two")
        index = {entry["name"]: entry for entry in (await probe.client.post("/v2/repository/index")).json()}
        assert set(index) == set(models)
        if "bad" in models:
            assert index["bad"]["state"] == "UNAVAILABLE"
            assert "model.onnx" in index["bad"]["reason"]
        if not ready:
            reason = (await probe.client.get("/v2/health/ready")).json()["error"]
            assert ("'bad'" if models else "no models") in reason


async def test_b17_a_model_that_is_added_leaves_the_server_ready(write_model: WriteModel, start: StartServer) -> None:
    write_model("value", "late", config=SLOWLY)
    server = await start(write_model("two"), load_models=("two",), model_control="explicit")
    await server.load()
    async with probing(server) as probe, resting(server) as client:
        loading = asyncio.create_task(client.post("/v2/repository/models/late/load"))
        polls = 0
        while not loading.done():
            assert await probe.ready()
            polls += not await probe.ready("late")
        assert (await loading).status_code == 200
        assert polls
        assert await probe.ready("late")
