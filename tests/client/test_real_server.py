"""Clients beside a real server that is large, slow, shared, left alone and started anew."""

from __future__ import annotations

import asyncio
import os
import socket
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from zoo_server import serving

from tidemill import errors
from tidemill.client import AsyncClient, Client

X = np.arange(6, dtype=np.float32).reshape(3, 2)
ENDLESS = np.array([[1e6]], np.float32)
"""Turns of the model "slow": about 100 s, so that a test would not end if they were not stopped."""
WIRES = pytest.mark.parametrize("wire", ["http", "grpc"])
KINDS = pytest.mark.parametrize("kind", [Client, AsyncClient])


@pytest.fixture(scope="module")
def addresses(all_models: Path) -> Iterator[dict[str, str]]:
    with serving(all_models) as found:
        yield found


@pytest.fixture
def url(wire: str, addresses: dict[str, str]) -> str:
    return f"{wire}://{addresses[wire]}"


def ask(client: Any, *arguments: Any, **options: Any) -> Any:
    """The answer of either client."""
    answer = client.infer(*arguments, **options)
    return asyncio.run(answer) if asyncio.iscoroutine(answer) else answer


def inflight(addresses: dict[str, str]) -> float:
    with urllib.request.urlopen(f"http://{addresses['http']}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith("tidemill_inflight_requests"))


async def until_inflight(count: int, addresses: dict[str, str]) -> None:
    async with asyncio.timeout(20):
        while await asyncio.to_thread(inflight, addresses) != count:
            await asyncio.sleep(0.01)


@WIRES
@KINDS
def test_a_hundred_megabytes_go_and_come_back(kind: Any, url: str) -> None:
    large = np.arange(25_000_000, dtype=np.float32).reshape(-1, 2)
    with_client = kind(url)
    answer = ask(with_client, "two", {"x": large}, outputs=["y"])
    assert answer["y"].shape == large.shape
    assert np.array_equal(answer["y"], large + 1)


@WIRES
def test_thirty_two_threads_share_a_client(url: str) -> None:
    def one(number: int) -> bool:
        x = np.full((1 + number % 5, 2), number, np.float32)
        return np.array_equal(client.infer("two", {"x": x})["z"], x * 2)

    with Client(url) as client, ThreadPoolExecutor(32) as pool:
        assert all(pool.map(one, range(640)))


@WIRES
async def test_a_hundred_cancelled_calls_free_the_server_and_leave_nothing(url: str, addresses: dict[str, str]) -> None:
    async with AsyncClient(url) as client:
        await client.infer("slow", {"x": np.zeros((1, 1), np.float32)})
        tasks, files = len(asyncio.all_tasks()), len(os.listdir("/proc/self/fd"))
        calls = [asyncio.create_task(client.infer("slow", {"x": ENDLESS})) for _ in range(50)]
        await until_inflight(50, addresses)
        for call in calls:
            call.cancel()
        ends = await asyncio.gather(*calls, return_exceptions=True)
        ends += await asyncio.gather(
            *(asyncio.wait_for(client.infer("slow", {"x": ENDLESS}), 0.05) for _ in range(50)), return_exceptions=True
        )
        assert all(isinstance(end, asyncio.CancelledError | TimeoutError) for end in ends)
        # Behind a run of 100 s that nobody stopped, this would not be answered.
        answer = await client.infer("slow", {"x": np.ones((1, 1), np.float32)}, timeout=20)
        assert answer["y"].item() == 1
        assert len(asyncio.all_tasks()) <= tasks + 1
        assert len(os.listdir("/proc/self/fd")) <= files + 4
    await until_inflight(0, addresses)


@WIRES
@KINDS
def test_a_call_that_times_out_is_told_so_and_the_server_drops_it(
    kind: Any, url: str, addresses: dict[str, str]
) -> None:
    client = kind(url)
    with pytest.raises(errors.DeadlineExceeded):
        ask(client, "slow", {"x": ENDLESS}, timeout=0.2)
    assert ask(client, "slow", {"x": np.ones((1, 1), np.float32)}, timeout=20)["y"].item() == 1


def own_host() -> str:
    """IPv6 where this machine has it."""
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return "127.0.0.1"
    return "::1"


def test_a_server_that_was_started_anew_is_found_again(all_models: Path) -> None:
    host = own_host()
    with serving(all_models, "--host", host) as first:
        ports = {wire: first[wire].rpartition(":")[2] for wire in ("http", "grpc")}
        place = f"[{host}]" if ":" in host else host
        clients = [kind(f"{wire}://{place}:{port}/") for kind in (Client, AsyncClient) for wire, port in ports.items()]
        for client in clients:
            assert np.array_equal(ask(client, "two", {"x": X})["y"], X + 1)
    with serving(all_models, "--host", host, "--http-port", ports["http"], "--grpc-port", ports["grpc"]):
        for client in clients:
            assert np.array_equal(ask(client, "two", {"x": X}, timeout=20)["y"], X + 1)
