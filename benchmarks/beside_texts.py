"""What callers of an ordinary model notice of texts that the same server makes, on the same processors.

python benchmarks/beside_texts.py --ordinary models/minilm/1 --texts models/smollm2-int4
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import tempfile
import time
from pathlib import Path

import httpx
import numpy as np
from fairness import Crowd
from processes import HOST, Launch, free_ports, running
from servers import SERVERS, Place

from tidemill.client import AsyncClient


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ordinary", type=Path, default=Path("models/minilm/1"), help="the bundle that is asked")
    parser.add_argument("--texts", type=Path, default=Path("models/smollm2-int4"), help="the model that makes texts")
    parser.add_argument("--callers", type=int, default=1, help="of the ordinary model")
    parser.add_argument("--writers", type=int, default=8, help="texts at any moment")
    parser.add_argument("--seconds", type=float, default=4.0, help="of each stretch")
    parser.add_argument("--rounds", type=int, default=4)
    settings = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        repository = Path(folder, "models")
        shutil.copytree(settings.ordinary.resolve(), repository / "ordinary" / "1")
        shutil.copytree(settings.texts.resolve(), repository / "texts")
        place = Place(repository, "ordinary", tuple(free_ports(4)), 0)
        launch: Launch = SERVERS["tidemill"].launch(place)
        with running(launch, None, Path(folder, "log")):
            asyncio.run(_compare(settings, f"http://{HOST}:{place.ports[0]}"))


async def _compare(settings: argparse.Namespace, url: str) -> None:
    alone, beside = Crowd("ordinary", settings.callers), Crowd("ordinary", settings.callers)
    tokens, took = 0, 0.0
    async with AsyncClient(url) as client, httpx.AsyncClient(base_url=url, timeout=120) as http:
        await Crowd("ordinary", settings.callers).ask(client, time.perf_counter() + 1.0)
        for _ in range(settings.rounds):
            await alone.ask(client, time.perf_counter() + settings.seconds)
            begun = time.perf_counter()
            ends = begun + settings.seconds
            writing = [asyncio.create_task(_write(http, ends)) for _ in range(settings.writers)]
            await asyncio.sleep(0.5)
            await beside.ask(client, ends)
            tokens += sum([await writer for writer in writing])
            took += time.perf_counter() - begun
    print(f"{'':16} {'answers/s':>10} {'p50 ms':>8} {'p99 ms':>8}")
    found = {"alone": alone, f"beside {settings.writers} texts": beside}
    for name, crowd in found.items():
        p50, p99 = np.quantile(crowd.seconds, [0.5, 0.99]) * 1e3
        rate = settings.callers / np.mean(crowd.seconds)
        print(f"{name:16} {rate:10.0f} {p50:8.2f} {p99:8.2f}")
    print(f"{tokens / took:.0f} tokens a second meanwhile")


async def _write(client: httpx.AsyncClient, ends: float) -> int:
    """Ask for texts until the time is over; how many tokens were made."""
    made = 0
    while time.perf_counter() < ends:
        body = {"model": "texts", "prompt": "The tide comes in and", "max_tokens": 32, "ignore_eos": True}
        answer = await client.post("/v1/completions", json=body)
        made += answer.raise_for_status().json()["usage"]["completion_tokens"]
    return made


if __name__ == "__main__":
    main()
