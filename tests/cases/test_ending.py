"""What users of other servers reported of SIGTERM and of rollouts (B38), with processes as they are run.

`serving/test_lifecycle.py` has a second signal and SIGINT, `deploy/` the image, the chart and a whole rollout.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import ssl
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import grpc
import httpx
import numpy as np
import pytest

from tidemill.protocol import messages, rpc

Start = Callable[..., Awaitable[tuple[Process, str, str]]]
_TURNS = 600
_FOR_EVER = 1_000_000
_RUNNING = _QUEUED = 10
_WINDOW, _LIMIT = 1.5, 120.0
_NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""Spares every client to read the machine's certificates."""


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    """Runs `tidemill serve`; its REST and gRPC addresses once it listens."""
    processes: list[Process] = []

    async def start(repository: Path, *flags: str, wait: bool = True) -> tuple[Process, str, str]:
        command = [sys.executable, "-m", "tidemill.cli", "serve", str(repository), "--http-port", "0"]
        process = await asyncio.create_subprocess_exec(*command, "--grpc-port", "0", *flags, stdout=PIPE, stderr=PIPE)
        processes.append(process)
        if not wait:
            return process, "", ""
        assert process.stdout
        line = (await asyncio.wait_for(process.stdout.readline(), 60)).decode()
        http, rpc_address = re.findall(r"127\.0\.0\.1:\d+", line)
        return process, f"http://{http}", rpc_address

    yield start
    for process in processes:
        if process.returncode is None:
            process.kill()
        await process.communicate()


def slow(turns: int) -> dict[str, Any]:
    return {"inputs": [{"name": "x", "shape": [1, 1], "datatype": "FP32", "data": [turns]}]}


def message(turns: int) -> Any:
    request = messages.ModelInferRequest(model_name="slow", raw_input_contents=[np.float32(turns).tobytes()])
    request.inputs.add(name="x", datatype="FP32", shape=[1, 1])
    return request


async def until(url: str, pattern: str) -> None:
    """Return once a line of the metrics says so."""
    async with httpx.AsyncClient() as client, asyncio.timeout(60):
        while not re.search(pattern, (await client.get(f"{url}/metrics")).text, re.MULTILINE):
            await asyncio.sleep(0.005)


async def knock(url: str, found: list[str]) -> None:
    """A new connection every 20 ms, until none is taken any more."""
    while not found or found[-1] != "refused":
        try:
            async with httpx.AsyncClient(timeout=60, verify=_NO_TLS) as client:
                answer = await client.post(f"{url}/v2/models/slow/infer", json=slow(0))
            found.append(f"{answer.status_code} {answer.headers.get('connection', '')}".strip())
        except httpx.ConnectError:
            found.append("refused")
        except httpx.TransportError as error:
            found.append(f"cut off: {type(error).__name__}")
        await asyncio.sleep(0.02)


async def knock_over_grpc(address: str, found: list[str]) -> None:
    """The same over gRPC."""
    while not found or found[-1] == "OK":
        async with grpc.aio.insecure_channel(address, [("grpc.use_local_subchannel_pool", 1)]) as channel:
            call = channel.unary_unary(rpc.method_path("ModelInfer"))(message(0).SerializeToString())
            found.append((await call.code()).name)
        await asyncio.sleep(0.02)


async def test_b38_what_was_taken_is_answered_and_what_comes_later_refused_cleanly(
    write_model: Callable[..., Path], start: Start
) -> None:
    repository = write_model("slow", config={"max_batch_size": 0, "instances": _RUNNING, "threads": 1})
    flags = ("--drain-window-seconds", str(_WINDOW), "--drain-limit-seconds", str(_LIMIT))
    process, url, rpc_address = await start(repository, *flags)
    found: list[str] = []
    found_over_grpc: list[str] = []
    limits = httpx.Limits(max_connections=None)
    async with (
        httpx.AsyncClient(base_url=url, timeout=120, limits=limits) as client,
        grpc.aio.insecure_channel(rpc_address) as channel,
    ):
        stream = channel.stream_stream(
            rpc.method_path("ModelStreamInfer"),
            request_serializer=lambda request: request.SerializeToString(),
            response_deserializer=messages.ModelStreamInferResponse.FromString,
        )()
        await stream.write(message(0))
        assert not (await stream.read()).error_message
        asked = range(_RUNNING + _QUEUED)
        posts = [asyncio.create_task(client.post("/v2/models/slow/infer", json=slow(_TURNS + n))) for n in asked]
        await until(url, rf"^tidemill_instances_busy{{.*}} {_RUNNING}\.0$")
        await until(url, rf"^tidemill_queue_depth{{.*}} {_QUEUED}\.0$")
        process.send_signal(signal.SIGTERM)
        signalled = time.monotonic()
        await unready(url)
        knocking = asyncio.gather(knock(url, found), knock_over_grpc(rpc_address, found_over_grpc))
        await stream.write(message(_TURNS))
        answers = await asyncio.gather(*posts)
        last = await stream.read()
        assert await asyncio.wait_for(process.wait(), _WINDOW + _LIMIT) == 0
        assert time.monotonic() - signalled >= _WINDOW
        await asyncio.wait_for(knocking, 60)
    assert [answer.json()["outputs"][0]["data"] for answer in answers] == [[_TURNS + n] for n in asked]
    assert np.frombuffer(last.infer_response.raw_output_contents[0], np.float32).tolist() == [_TURNS]
    kinds = list(dict.fromkeys(found))
    assert kinds[0] == "200 close"
    assert kinds[-1] == "refused"
    assert set(kinds) <= {"200 close", "503 close", "refused"}
    assert (found_over_grpc[0], found_over_grpc[-1]) == ("OK", "UNAVAILABLE")


@pytest.mark.parametrize("isolation", ["none", "process"])
async def test_b38_at_the_limit_everybody_is_told_and_the_process_ends(
    write_model: Callable[..., Path], start: Start, isolation: str
) -> None:
    repository = write_model("slow", config={"max_batch_size": 0, "isolation": isolation})
    process, url, rpc_address = await start(repository, "--drain-limit-seconds", "0.2")
    children = _children(process.pid)
    async with (
        httpx.AsyncClient(base_url=url, timeout=60, limits=httpx.Limits(max_connections=None)) as client,
        grpc.aio.insecure_channel(rpc_address) as channel,
    ):
        running = asyncio.create_task(client.post("/v2/models/slow/infer", json=slow(_FOR_EVER)))
        await until(url, r"^tidemill_instances_busy{.*} 1\.0$")
        waiting = [asyncio.create_task(client.post("/v2/models/slow/infer", json=slow(n))) for n in range(2)]
        call = channel.unary_unary(rpc.method_path("ModelInfer"))(message(0).SerializeToString())
        await until(url, r"^tidemill_queue_depth{.*} 3\.0$")
        process.send_signal(signal.SIGTERM)
        answers = await asyncio.gather(*waiting, running)
        assert {answer.status_code for answer in answers} == {503}
        told = {answer.json()["error"] for answer in answers} | {await call.details()}
        assert told == {f"the model was shut down before the {what}" for what in ("request was run", "run had ended")}
        assert await call.code() is grpc.StatusCode.UNAVAILABLE
    assert await asyncio.wait_for(process.wait(), 30) == 0
    await all_gone(children)


@pytest.mark.parametrize(
    ("number", "window"), [(signal.SIGTERM, "0"), (signal.SIGINT, "600")], ids=["after the window", "in the window"]
)
async def test_b38_a_second_signal_ends_what_is_run(
    write_model: Callable[..., Path], start: Start, number: signal.Signals, window: str
) -> None:
    repository = write_model("slow", config={"max_batch_size": 0})
    process, url, _ = await start(repository, "--drain-limit-seconds", "600", "--drain-window-seconds", window)
    async with httpx.AsyncClient(base_url=url, timeout=60) as client:
        running = asyncio.create_task(client.post("/v2/models/slow/infer", json=slow(_FOR_EVER)))
        await until(url, r"^tidemill_instances_busy{.*} 1\.0$")
        process.send_signal(signal.SIGTERM)
        await unready(url)
        process.send_signal(number)
        assert (await running).status_code == 503
    assert await asyncio.wait_for(process.wait(), 30) == 0


async def unready(url: str) -> None:
    """Return once the server does not want to be asked any more, or cannot be."""
    with suppress(httpx.TransportError):
        async with httpx.AsyncClient(base_url=url, verify=_NO_TLS) as client, asyncio.timeout(30):
            while (await client.get("/v2/health/ready")).status_code == 200:
                await asyncio.sleep(0.005)


_SLEEPS = """
import pathlib, time
pathlib.Path(__file__).with_name("begun").touch()
time.sleep(600)
async def run(tensors, ask): ...
"""


async def test_b38_a_load_that_does_not_end_holds_up_nothing(write_model: Callable[..., Path], start: Start) -> None:
    repository = write_model("slow")
    tensors = "[{name: x, datatype: FP32, shape: [-1]}]"
    (repository / "sleeps").mkdir()
    (repository / "sleeps" / "pipeline.py").write_text(_SLEEPS)
    (repository / "sleeps" / "model.yaml").write_text(
        f"pipeline: {{models: [slow], inputs: {tensors}, outputs: {tensors}}}"
    )
    process, _, _ = await start(repository, "--allow-code", wait=False)
    async with asyncio.timeout(60):
        while not (repository / "sleeps" / "begun").exists():
            await asyncio.sleep(0.005)
    process.send_signal(signal.SIGTERM)
    assert await asyncio.wait_for(process.wait(), 30) == 0


async def test_b38_a_signal_while_models_load_ends_the_server_and_its_children(
    write_model: Callable[..., Path], start: Start
) -> None:
    process, _, _ = await start(write_model("slow", config={"isolation": "process"}), wait=False)
    async with asyncio.timeout(60):
        while not (children := _children(process.pid)):
            await asyncio.sleep(0.005)
    for child in children:
        os.kill(child, signal.SIGSTOP)  # its load does not end before the server does
    process.send_signal(signal.SIGTERM)
    try:
        await all_gone([process.pid])
    finally:
        for child in children:
            os.kill(child, signal.SIGCONT)
    assert await asyncio.wait_for(process.wait(), 60) == 0
    await all_gone(children)


async def test_b38_no_child_outlives_a_server_that_is_killed(write_model: Callable[..., Path], start: Start) -> None:
    process, url, _ = await start(write_model("slow", config={"isolation": "process"}))
    children = _children(process.pid)
    assert len(children) == 1
    async with httpx.AsyncClient(base_url=url, timeout=60) as client:
        running = asyncio.create_task(client.post("/v2/models/slow/infer", json=slow(_FOR_EVER)))
        await until(url, r"^tidemill_instances_busy{.*} 1\.0$")
        process.kill()
        with pytest.raises(httpx.TransportError):
            await running
    await all_gone(children)


async def all_gone(pids: list[int]) -> None:
    """Return once none of the processes is there."""
    async with asyncio.timeout(60):
        while any(_is_alive(pid) for pid in pids):
            await asyncio.sleep(0.005)


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()] + [
        int(child)
        for task in Path(f"/proc/{pid}/task").iterdir()
        if task.name != str(pid)
        for child in (task / "children").read_text().split()
    ]


def _is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"
