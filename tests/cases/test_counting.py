"""What users of other servers reported of failures and times that are not counted (B32); `serving/test_outcomes.py` has
the counter of every end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from asking import asking
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from tidemill.serving import Server, ServerConfig

StartServer = Callable[..., Awaitable[Server]]
Labels = frozenset[tuple[str, str]]

_GATHERS = {"batching": {"preferred_batch_size": [8], "max_queue_delay_microseconds": 30_000_000}, "max_batch_size": 8}
_PER_REQUEST = ("tidemill_request_duration_seconds", "tidemill_queue_duration_seconds")
_PER_RUN = (
    "tidemill_compute_infer_duration_seconds",
    "tidemill_compute_input_duration_seconds",
    "tidemill_compute_output_duration_seconds",
    "tidemill_batch_size",
)


@pytest.fixture
async def server(write_model: Callable[..., Path]) -> AsyncIterator[Server]:
    """Runs "value" when eight rows are there, and not before."""
    server = Server([write_model("value", config=_GATHERS)], ServerConfig(http_port=0, grpc_port=0))
    await server.start()
    await server.load()
    yield server
    await server.stop()


async def scraped(server: Server) -> dict[tuple[str, Labels], float]:
    async with httpx.AsyncClient() as client:
        page = (await client.get(f"http://127.0.0.1:{server.http_port}/metrics")).text
    samples: list[Sample] = [one for family in text_string_to_metric_families(page) for one in family.samples]
    return {(one.name, frozenset(one.labels.items())): one.value for one in samples}


def summed(found: dict[tuple[str, Labels], float], name: str, **labels: str) -> float:
    wanted = ({"model": "value"} | labels).items()
    return sum(value for (known, given), value in found.items() if known == name and wanted <= given)


async def test_b32_eight_requests_of_both_faces_are_one_run_of_eight_rows(server: Server) -> None:
    before = await scraped(server)
    async with asking("rest", server) as rest, asking("grpc", server) as rpc:
        told = await asyncio.gather(*(ask("value", np.ones((1, 1), np.float32)) for ask in [rest, rpc] * 4))
    assert {one.code for one in told} == {"OK"}
    after = await scraped(server)

    def moved(name: str, **labels: str) -> float:
        return summed(after, name, **labels) - summed(before, name, **labels)

    for protocol in ("rest", "grpc"):
        assert moved("tidemill_requests_total", protocol=protocol, code="ok") == 4
        assert moved("tidemill_request_duration_seconds_count", protocol=protocol, outcome="success") == 4
    assert [moved(f"{name}_count") for name in _PER_REQUEST] == [8, 8]
    assert [moved(f"{name}_count") for name in _PER_RUN] == [1, 1, 1, 1]
    assert moved("tidemill_batch_size_sum") == 8
    assert (moved("nv_inference_count_total"), moved("nv_inference_exec_count_total")) == (8, 1)
    assert moved("nv_inference_request_success_total") == 8


async def test_b32_histograms_are_cumulative_and_agree_with_their_counts(server: Server) -> None:
    async with asking("rest", server) as ask:
        await ask("value", np.ones((8, 1), np.float32))
    found = await scraped(server)
    buckets: dict[tuple[str, Labels], list[tuple[float, float]]] = {}
    for (name, labels), value in found.items():
        if name.endswith("_bucket"):
            edge = float(dict(labels)["le"])
            rest = frozenset(pair for pair in labels if pair[0] != "le")
            buckets.setdefault((name.removesuffix("_bucket"), rest), []).append((edge, value))
    assert {name for name, _ in buckets} >= {*_PER_REQUEST, *_PER_RUN}
    for (name, labels), steps in buckets.items():
        counts = [count for _, count in sorted(steps)]
        assert counts == sorted(counts), name
        assert max(steps)[0] == float("inf")
        assert counts[-1] == found[f"{name}_count", labels]
        assert (f"{name}_sum", labels) in found


async def test_b32_nothing_goes_backwards_when_a_model_is_replaced(server: Server) -> None:
    async with asking("rest", server) as ask, httpx.AsyncClient() as client:
        await ask("value", np.ones((8, 1), np.float32))
        await ask("value", np.ones((8, 2), np.float32))
        url = f"http://127.0.0.1:{server.http_port}/v2/repository/models/value"
        before = await scraped(server)
        for verb in ("unload", "load"):
            assert (await client.post(f"{url}/{verb}", timeout=60)).status_code == 200
            now = await scraped(server)
            counted = [key for key in before if key[0].endswith(("_total", "_count", "_sum", "_bucket"))]
            assert [key for key in counted if now[key] < before[key]] == []
            before = now


async def test_b32_every_series_of_a_model_is_there_before_its_first_request(server: Server) -> None:
    before = {key for key in await scraped(server) if ("model", "value") in key[1]}
    async with asking("rest", server) as rest, asking("grpc", server) as rpc:
        for ask in (rest, rpc):
            await ask("value", np.ones((8, 1), np.float32))
            await ask("value", np.ones((8, 2), np.float32))
    after: Any = {key for key in await scraped(server) if ("model", "value") in key[1]}
    assert after == before


@pytest.mark.parametrize("face", ["rest", "grpc"])
async def test_b32_failures_are_timed_apart_and_add_no_series(server: Server, face: str) -> None:
    before = await scraped(server)
    async with asking(face, server) as ask:
        told = [
            await ask("value", np.ones((8, 1), np.float32)),
            await ask("value", np.ones((8, 2), np.float32)),
            await ask("value", np.ones((1, 1), np.float32), timeout=10_000),
            await ask("nobody", np.ones((1, 1), np.float32)),
        ]
        cancelled = asyncio.create_task(ask("value", np.ones((1, 1), np.float32)))
        async with asyncio.timeout(10):
            while not server.service.inflight:
                await asyncio.sleep(0.001)
            cancelled.cancel()
            while server.service.inflight:
                await asyncio.sleep(0.001)
    assert [one.code == "OK" for one in told] == [True, False, False, False]
    after = await scraped(server)
    assert after.keys() == before.keys()

    def moved(name: str, model: str = "value", **labels: str) -> float:
        return summed(after, name, model=model, **labels) - summed(before, name, model=model, **labels)

    codes = ("ok", "invalid_argument", "deadline_exceeded", "cancelled")
    assert [moved("tidemill_requests_total", protocol=face, code=code) for code in codes] == [1, 1, 1, 1]
    assert moved("tidemill_requests_total", model="", protocol=face, code="not_found") == 1
    for model, successes, failures in (("value", 1, 3), ("", 0, 1)):
        for outcome, count in (("success", successes), ("failure", failures)):
            assert moved("tidemill_request_duration_seconds_count", model, protocol=face, outcome=outcome) == count
        assert moved("tidemill_requests_total", model) == successes + failures
    # What was never run is in no run's histogram.
    assert [moved(f"{name}_count") for name in ("tidemill_queue_duration_seconds", *_PER_RUN)] == [1] * 5
    assert (moved("nv_inference_request_success_total"), moved("nv_inference_request_failure_total")) == (1, 3)
