"""A rolling update, rehearsed: replicas behind HAProxy are replaced one after the other while callers go on."""

from __future__ import annotations

import asyncio
import re
import shutil
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import numpy as np
import pytest
import tritonclient.grpc.aio as triton
from balancer import CHECK_SECONDS, Balancer, balancer

pytestmark = pytest.mark.skipif(
    shutil.which("haproxy") is None, reason="haproxy is not installed (Debian's package haproxy; make deploy-test does)"
)

# Longer than HAProxy needs to see that a replica is not ready any more.
WINDOW = f"--drain-window-seconds={CHECK_SECONDS * 3}"
BODY = {"inputs": [{"name": "x", "shape": [1, 2], "datatype": "FP32", "data": [1, 2]}]}


@dataclass
class Callers:
    """Who asks through the balancer, again and again, over both faces, and never tries a request twice."""

    balancer: Balancer
    answered: dict[str, int] = field(default_factory=lambda: {"rest": 0, "grpc": 0})
    failures: list[str] = field(default_factory=list)
    _open: bool = True

    async def rest(self) -> None:
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{self.balancer.rest_port}", timeout=60) as client:
            while self._open:
                try:
                    answer = await client.post("/v2/models/two/infer", json=BODY)
                except httpx.HTTPError as error:
                    self.failures.append(f"REST {error!r}")
                    continue
                if answer.status_code == 200 and answer.json()["outputs"][0]["data"] == [2.0, 3.0]:
                    self.answered["rest"] += 1
                else:
                    self.failures.append(f"REST {answer.status_code} {answer.text}")

    async def grpc(self) -> None:
        given = triton.InferInput("x", [1, 2], "FP32")
        given.set_data_from_numpy(np.array([[1, 2]], np.float32))
        async with triton.InferenceServerClient(f"127.0.0.1:{self.balancer.grpc_port}") as client:
            while self._open:
                try:
                    answer = (await client.infer("two", [given])).as_numpy("y")
                except Exception as error:
                    self.failures.append(f"gRPC {error}")
                    await asyncio.sleep(0)
                    continue
                assert answer is not None
                np.testing.assert_array_equal(answer, [[2, 3]])
                self.answered["grpc"] += 1

    async def answers(self, more: int) -> None:
        """Return after so many more answers over each face."""
        goal = {face: count + more for face, count in self.answered.items()}
        async with asyncio.timeout(60):
            while any(self.answered[face] < goal[face] for face in goal):
                await asyncio.sleep(0.01)

    @asynccontextmanager
    async def at_work(self) -> AsyncIterator[None]:
        tasks = [asyncio.create_task(face()) for face in [self.rest] * 4 + [self.grpc] * 2]
        try:
            yield
        finally:
            self._open = False
            await asyncio.gather(*tasks)


async def _replica(repository: Path, *flags: str) -> tuple[Process, int, int]:
    ports = ["--http-port", "0", "--grpc-port", "0"]
    command = [sys.executable, "-m", "tidemill.cli", "serve", str(repository), *ports, *flags]
    process = await asyncio.create_subprocess_exec(*command, stdout=PIPE)
    assert process.stdout
    line = (await asyncio.wait_for(process.stdout.readline(), 60)).decode()
    http_port, grpc_port = map(int, re.findall(r"127\.0\.0\.1:(\d+)", line))
    return process, http_port, grpc_port


async def _roll(repository: Path, folder: Path, *flags: str) -> tuple[Callers, list[int | None]]:
    """Two replicas; each is replaced by a new one that is ready before the old is told to end."""
    ends: list[int | None] = []
    processes: dict[str, Process] = {}
    async with balancer(folder) as before:
        callers = Callers(before)
        try:
            for slot in "ab":
                processes[slot], *ports = await _replica(repository, *flags)
                await before.put(slot, *ports)
            async with callers.at_work():
                await callers.answers(50)
                for new, old in (("c", "a"), ("a", "b")):
                    process, *ports = await _replica(repository, *flags)
                    await before.put(new, *ports)
                    ending = processes.pop(old)
                    processes[new] = process
                    ending.send_signal(signal.SIGTERM)
                    ends.append(await asyncio.wait_for(ending.wait(), 30))
                    await before.until(old, "DOWN")
                    await before.drop(old)
                    await callers.answers(50)
        finally:
            for process in processes.values():
                process.kill()
                await process.wait()
    return callers, ends


async def test_b38_no_request_fails_while_every_replica_is_replaced(
    write_model: Callable[..., Path], tmp_path: Path
) -> None:
    callers, ends = await _roll(write_model("two"), tmp_path, WINDOW)
    assert callers.failures == []
    assert ends == [0, 0]
    assert min(callers.answered.values()) >= 150


async def test_without_the_window_requests_do_fail(write_model: Callable[..., Path], tmp_path: Path) -> None:
    """So the test above can fail: a replica that ends at once is still asked until the balancer looks again."""
    callers, _ = await _roll(write_model("two"), tmp_path, "--drain-window-seconds=0")
    assert callers.failures
