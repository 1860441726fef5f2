"""A real process from start to SIGTERM, and a server's orderly end in the test's own loop."""

from __future__ import annotations

import asyncio
import os
import re
import resource
import signal
import socket
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc
import httpx
import numpy as np
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from zoo_server import serving

from tidemill.cli import main
from tidemill.errors import ConfigError
from tidemill.protocol import messages, rpc
from tidemill.serving import Server, ServerConfig

WriteModel = Callable[..., Path]
StartProcess = Callable[..., Awaitable[tuple[Process, str, int, int]]]


@pytest.fixture
async def start_process() -> AsyncIterator[StartProcess]:
    """Runs `tidemill serve` and returns the process, its announcement and both ports."""
    processes: list[Process] = []

    async def start(repository: Path, *flags: str) -> tuple[Process, str, int, int]:
        command = [sys.executable, "-m", "tidemill.cli", "serve", str(repository)]
        ports = ["--http-port", "0", "--grpc-port", "0"]
        process = await asyncio.create_subprocess_exec(*command, *ports, *flags, stdout=PIPE)
        processes.append(process)
        assert process.stdout
        line = (await asyncio.wait_for(process.stdout.readline(), 60)).decode()
        http_port, grpc_port = map(int, re.findall(r"127\.0\.0\.1:(\d+)", line))
        return process, line, http_port, grpc_port

    yield start
    for process in processes:
        if process.returncode is None:
            process.kill()
        await process.communicate()


def slow_body(turns: int) -> dict[str, Any]:
    return {"inputs": [{"name": "x", "shape": [1, 1], "datatype": "FP32", "data": [turns]}]}


async def inflight(port: int, number: int, rest: str = "") -> None:
    """Return once the process has that many requests."""
    pattern = re.compile(rf"^tidemill_inflight_requests {number}\.0$", re.MULTILINE)
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client, asyncio.timeout(120):
        while not pattern.search((await client.get("/metrics")).text):
            await asyncio.sleep(0.005)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_lets_every_request_finish_and_exits_with_0(
    write_model: WriteModel, start_process: StartProcess, number: signal.Signals
) -> None:
    repository = write_model("slow", config={"max_batch_size": 0})
    # The limit is for another test: on a busy machine ten slow runs take longer than its default.
    process, line, http_port, grpc_port = await start_process(repository, "--drain-limit-seconds", "300")
    assert line.startswith("tidemill serves 1 model(s) on http://127.0.0.1:")
    request = messages.ModelInferRequest(model_name="slow", raw_input_contents=[np.float32(4000).tobytes()])
    request.inputs.add(name="x", datatype="FP32", shape=[1, 1])
    url = f"http://127.0.0.1:{http_port}/v2/models/slow/infer"
    async with (
        httpx.AsyncClient(timeout=60) as client,
        grpc.aio.insecure_channel(f"127.0.0.1:{grpc_port}") as channel,
    ):
        stub = channel.unary_unary(rpc.method_path("ModelInfer"))
        posts = [asyncio.create_task(client.post(url, json=slow_body(4000))) for _ in range(5)]
        calls = [stub(request.SerializeToString()) for _ in range(5)]
        await inflight(http_port, 10)
        process.send_signal(number)
        answers = await asyncio.gather(*posts)
        raw = [await call for call in calls]
    assert [answer.json()["outputs"][0]["data"] for answer in answers] == [[4000]] * 5
    assert len(raw) == 5
    assert await asyncio.wait_for(process.wait(), 30) == 0
    with pytest.raises(OSError):  # noqa: PT011 (refused or reset, as the system likes)
        socket.create_connection(("127.0.0.1", http_port), timeout=5)


async def test_a_second_signal_waits_for_nobody(write_model: WriteModel, start_process: StartProcess) -> None:
    repository = write_model("slow", config={"max_batch_size": 0})
    process, _, http_port, _ = await start_process(repository, "--drain-window-seconds", "600")
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{http_port}", timeout=60) as client:
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(30):
            while (await client.get("/v2/health/ready")).status_code == 200:
                await asyncio.sleep(0.005)
        # Readiness is off and the window is open: requests are served, and clients are asked to leave.
        served = await client.post("/v2/models/slow/infer", json=slow_body(0))
        assert (served.status_code, served.headers["connection"]) == (200, "close")
        process.send_signal(signal.SIGTERM)
    assert await asyncio.wait_for(process.wait(), 30) == 0


async def test_a_server_that_is_told_to_drain_serves_on_until_its_end(
    write_model: WriteModel, start_process: StartProcess
) -> None:
    process, _, port, _ = await start_process(write_model("slow"))
    assert await asyncio.to_thread(main, ["drain", str(process.pid)]) == 0
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
        while (await client.get("/v2/health/ready")).status_code != 503:
            await asyncio.sleep(0)
        assert (await client.get("/v2/health/live")).status_code == 200
        answer = await client.post("/v2/models/slow/infer", json=slow_body(1))
        assert answer.status_code == 200
        assert answer.headers["connection"] == "close"
    process.send_signal(signal.SIGTERM)
    assert await asyncio.wait_for(process.wait(), 30) == 0


async def test_requests_over_the_drain_limit_are_told(write_model: WriteModel) -> None:
    repository = write_model("slow", config={"max_batch_size": 0})
    server = Server([repository], ServerConfig(http_port=0, grpc_port=0, drain_limit_seconds=0.05))
    await server.start()
    await server.load()
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{server.http_port}", timeout=60) as client:
        tasks = [asyncio.create_task(client.post("/v2/models/slow/infer", json=slow_body(n))) for n in (2_000, 1, 1)]
        async with asyncio.timeout(30):
            while server.service.inflight < 3:
                await asyncio.sleep(0.002)
        await server.stop()
        results = await asyncio.gather(*tasks, return_exceptions=True)
    statuses = [result.status_code if isinstance(result, httpx.Response) else 0 for result in results]
    assert statuses[1:] == [503, 503]


async def test_an_open_health_watch_does_not_hold_up_the_end(all_models: Path) -> None:
    server = Server([all_models], ServerConfig(http_port=0, grpc_port=0, drain_limit_seconds=60))
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel:
        watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest())
        assert (await watch.read()).status == health_pb2.HealthCheckResponse.NOT_SERVING
        async with asyncio.timeout(20):
            await server.stop()
        assert await watch.read() is grpc.aio.EOF


@pytest.mark.parametrize("setting", ["http_port", "grpc_port"])
async def test_a_port_in_use_is_named(write_model: WriteModel, setting: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        ports = {"http_port": 0, "grpc_port": 0, setting: taken.getsockname()[1]}
        server = Server([write_model("two")], ServerConfig(**ports))
        with pytest.raises(ConfigError, match=rf"cannot listen on .*{ports[setting]}.*{setting}"):
            await server.start()
        await server.stop()


async def test_a_host_that_is_none_is_named(write_model: WriteModel) -> None:
    server = Server([write_model("two")], ServerConfig(host="no.such.host.invalid", http_port=0, grpc_port=0))
    with pytest.raises(ConfigError, match=r"'no\.such\.host\.invalid'"):
        await server.start()
    await server.stop()


async def test_the_serve_path_imports_no_authoring_package(write_model: WriteModel) -> None:
    repository = write_model("two")
    script = (
        "import asyncio, sys, pathlib\n"
        "from tidemill.serving import Server, ServerConfig\n"
        "async def main():\n"
        "    server = Server([pathlib.Path(sys.argv[1])], ServerConfig(http_port=0, grpc_port=0))\n"
        "    await server.start()\n"
        "    await server.load()\n"
        "    assert server.service.ready\n"
        "    await server.stop()\n"
        "asyncio.run(main())\n"
        "heavy = {'onnx', 'tokenizers', 'safetensors', 'tidemill.graph', 'tidemill.nn'}\n"
        "print(sorted(heavy & set(sys.modules)))\n"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", script, str(repository), stdout=PIPE, env=dict(os.environ)
    )
    output, _ = await asyncio.wait_for(process.communicate(), 60)
    assert (process.returncode, output.decode().strip()) == (0, "[]")


def test_the_server_takes_all_descriptors_that_it_may_have(write_model: WriteModel) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    try:
        with serving(write_model("two")) as server:
            limits = Path(f"/proc/{server['pid']}/limits").read_text()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    (line,) = [line for line in limits.splitlines() if line.startswith("Max open files")]
    assert line.split()[3:5] == [str(hard), str(hard)]
