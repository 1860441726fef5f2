"""What good callers notice of hostile ones: latency beside each kind of them, as a ratio to the latency without.

The server has a core of its own; the good load and the hostile clients share another. An open loop of a fixed rate
keeps its schedule, so that a server that stalls is charged for it.

    python benchmarks/hostile.py --rounds 5
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import random
import resource
import tempfile
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from models import build
from processes import HOST, Cores, Launch, free_ports, pin, running
from servers import SERVERS, Place

from tidemill.bench import Load, Result, Settings, Windows, bench
from tidemill.bench.inputs import Generator
from tidemill.bench.target import Target

_HEAD = b"POST /v2/models/mlp16/infer HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_IDLE = 10_000
_SLOW = 1_000

Hostile = Callable[[int, int], Coroutine[Any, Any, None]]
"""Annoys the server on two ports, those of REST and gRPC, until it is cancelled."""


async def idle(http: int, _grpc: int) -> None:
    """Ten thousand connections that say nothing."""
    held = [await asyncio.open_connection(HOST, http) for _ in range(_IDLE)]
    await asyncio.sleep(3600)
    assert held


async def slow(http: int, _grpc: int) -> None:
    """A thousand heads, a byte at a time (slowloris)."""

    async def drip() -> None:
        while True:
            _, writer = await asyncio.open_connection(HOST, http)
            writer.write(_HEAD + b"x-more: ")
            try:
                while not writer.is_closing():
                    writer.write(b"y")
                    await asyncio.sleep(1.0)
            except ConnectionError:
                pass
            finally:
                writer.close()

    await asyncio.gather(*(drip() for _ in range(_SLOW)))


async def oversize(http: int, grpc: int) -> None:
    """Heads, bodies and messages that are said to be, or are, too large."""
    huge_head = _HEAD + b"x-large: " + b"y" * 100_000
    huge_body = _HEAD + b"content-length: 99999999999\r\n\r\n" + b"y" * 65_536
    deep_json = b"[" * 100_000
    deep = _HEAD + b"content-length: %d\r\n\r\n" % len(deep_json) + deep_json
    while True:
        for data in (huge_head, huge_body, deep):
            await _say(http, data)
        await _say(grpc, _PREFACE + b"\0\0\0\4\0\0\0\0\0" + b"\xff\xff\xff\0\1\0\0\0\1")
        await asyncio.sleep(0.02)


async def names(http: int, _grpc: int) -> None:
    """Names that no model has, as fast as they are refused."""
    dice = random.Random(0)
    limits = httpx.Limits(max_connections=8)
    async with httpx.AsyncClient(base_url=f"http://{HOST}:{http}", limits=limits, timeout=60) as client:

        async def ask() -> None:
            while True:
                await client.post(f"/v2/models/{dice.getrandbits(64):x}/infer", json={"inputs": []})
                await asyncio.sleep(0.01)

        await asyncio.gather(*(ask() for _ in range(8)))


async def garbage(http: int, grpc: int) -> None:
    """Bytes that are neither HTTP/1.1 nor HTTP/2, and HTTP/2 whose frames are malformed."""
    dice = random.Random(1)
    settings = b"\0\0\0\4\0\0\0\0\0"
    while True:
        for port in (http, grpc):
            await _say(port, dice.randbytes(2_000))
        await _say(grpc, _PREFACE + settings + dice.randbytes(2_000))
        await _say(grpc, _PREFACE + settings + b"\0\0\5\1\5\0\0\0\1\xff\xff\xff\xff\xff")
        await asyncio.sleep(0.01)


HOSTILE: dict[str, Hostile] = {"idle": idle, "slow": slow, "oversize": oversize, "names": names, "garbage": garbage}


async def _say(port: int, data: bytes) -> None:
    try:
        reader, writer = await asyncio.open_connection(HOST, port)
        writer.write(data)
        async with asyncio.timeout(1):
            await reader.read(65_536)
        writer.close()
    except (OSError, TimeoutError):
        pass


def main() -> None:
    settings = _arguments()
    cores = Cores.chosen()
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    with tempfile.TemporaryDirectory() as folder:
        repository = Path(folder, "models")
        build(["mlp16"], repository)
        place = Place(repository / "mlp16", "mlp16", tuple(free_ports(4)), 64)
        launch: Launch = SERVERS[settings.server].launch(place)
        with running(launch, cores.server, Path(folder, "log")) as pid:
            pin(cores.load)
            _compare(settings, place, pid)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--server", default="tidemill", choices=sorted(SERVERS))
    parser.add_argument("--rate", type=float, default=200.0, help="good requests a second")
    parser.add_argument("--seconds", type=float, default=2.0, help="measured beside each kind, each time")
    parser.add_argument("--rounds", type=int, default=5, help="times, in turn")
    parser.add_argument("--only", nargs="+", default=list(HOSTILE), choices=list(HOSTILE))
    return parser.parse_args()


def _compare(settings: argparse.Namespace, place: Place, pid: int) -> None:
    """Calm and beside each kind in turn, several times, for the machine's own state changes by the minute."""
    found: dict[str, list[tuple[float, float]]] = {}
    faults: dict[str, int] = {}
    state: dict[str, tuple[int, int]] = {}
    for _ in range(settings.rounds):
        for name in ("nobody", *settings.only):
            with _beside(name, place):
                result = _measure(settings, place)
                state[name] = _state(pid)
            found.setdefault(name, []).append(tuple(result.latency_ms[key].value for key in ("p50", "p99")))
            faults[name] = faults.get(name, 0) + sum(result.errors.values())
    calm = np.median(found["nobody"], axis=0)
    print(
        f"{'beside':10} {'p50 ms':>8} {'ratio':>6} {'p99 ms':>8} {'ratio':>6} {'errors':>7} {'RSS MB':>7} {'files':>6}"
    )
    for name, values in found.items():
        p50, p99 = np.median(values, axis=0)
        latencies = f"{p50:8.2f} {p50 / calm[0]:6.2f} {p99:8.2f} {p99 / calm[1]:6.2f}"
        resident, files = state[name]
        print(f"{name:10} {latencies} {faults[name]:7d} {resident:7d} {files:6d}")


@contextmanager
def _beside(name: str, place: Place) -> Iterator[None]:
    if name == "nobody":
        yield
        return
    process = multiprocessing.Process(target=_annoy, args=(name, *place.ports[:2]), daemon=True)
    process.start()
    try:
        yield
    finally:
        process.kill()
        process.join()


def _state(pid: int) -> tuple[int, int]:
    """The megabytes and the files that the server holds."""
    status = Path(f"/proc/{pid}/status").read_text()
    resident = int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1]) // 1024
    return resident, len(list(Path(f"/proc/{pid}/fd").iterdir()))


def _annoy(name: str, http: int, grpc: int) -> None:
    asyncio.run(HOSTILE[name](http, grpc))


def _measure(settings: argparse.Namespace, place: Place) -> Result:
    windows = Windows(settings.seconds, 2.0, 1, 1, 10.0)
    asked = Settings("mlp16", http_url=f"http://{HOST}:{place.ports[0]}", windows=windows, processes=1)
    with Target(asked) as target:
        feeds = Generator(target.signature().inputs).requests(0, 64)
    return bench(asked, [Load("binary", rate=settings.rate)], feeds, _Silent()).results[0]


class _Silent:
    """Hears nothing of how it goes; a `Watcher`."""

    def start(self, load: Load) -> None:
        pass

    def tell(self, text: str) -> None:
        pass

    def finish(self, result: Result) -> None:
        pass


if __name__ == "__main__":
    main()
