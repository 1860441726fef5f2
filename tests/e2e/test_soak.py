"""A mixed load with reloads; ten seconds here, ten minutes by `make soak`, or SOAK_SECONDS. The seed is SOAK_SEED."""

from __future__ import annotations

import asyncio
import gc
import os
import re
import warnings
from collections.abc import Callable
from pathlib import Path

import httpx
from reloading import put_version
from soak import Soak
from zoo_server import serving

SECONDS = float(os.environ.get("SOAK_SECONDS", "10"))
SEED = int(os.environ.get("SOAK_SEED", "1"))
LONG = SECONDS >= 60
GROWTH = 1.05 if LONG else 1.2
PRIORITIES = {"batching": {"priority_levels": 3, "default_priority_level": 2, "max_queue_delay_microseconds": 500}}


def resident(pid: str) -> int:
    """Bytes of memory that a process holds."""
    text = Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+)", text)[1]) * 1024  # type: ignore[index]


def files(pid: str) -> int:
    """The descriptors that a process has open."""
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def _let_go_of_lost_connections() -> None:
    """httpx loses connections whose callers are cancelled while they are made; here, not in the server."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


async def test_every_request_of_a_mixed_load_gets_its_right_answer(write_model: Callable[..., Path]) -> None:
    repository = write_model("value", "v", k=1, config=PRIORITIES)
    write_model("two", config=PRIORITIES)
    write_model("gather")

    def put(version: int) -> None:
        put_version(write_model, repository, version)

    with serving(repository) as server:
        load = Soak(server["http"], server["grpc"], repository, put, seconds=SECONDS, seed=SEED)
        # The first seconds fill pools and caches; what comes after them is what must not grow.
        warm = await Soak(
            server["http"], server["grpc"], repository, put, seconds=SECONDS / 20 if LONG else 1.5, seed=SEED
        ).run()
        before, open_before = resident(server["pid"]), files(server["pid"])
        account = await load.run()
        async with httpx.AsyncClient(base_url=f"http://{server['http']}") as client:
            page = (await client.get("/metrics")).text
        _let_go_of_lost_connections()
        async with asyncio.timeout(30):
            while files(server["pid"]) > open_before:
                await asyncio.sleep(0.05)
        after, open_after = resident(server["pid"]), files(server["pid"])
    print(f"\n{account}; memory {before / 1e6:.0f} to {after / 1e6:.0f} MB, files {open_before} to {open_after}")
    assert warm.faults == []
    assert account.faults == []
    counts = account.counts
    assert counts["sent"] == counts["answered"] + counts["refused"] + counts["cancelled"]
    assert min(counts[kind] for kind in ("answered", "refused", "cancelled", "loads", "broken loads")) > 0
    assert len(account.versions) > 1
    assert re.search(r"^tidemill_inflight_requests 0\.0$", page, re.MULTILINE)
    assert not re.search(r"^tidemill_queue_depth\{.*\} [1-9]", page, re.MULTILINE)
    assert after < before * GROWTH + (16 << 20)
