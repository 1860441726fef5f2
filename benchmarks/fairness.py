"""Models that share the processors of one server: what each gets when one of them is asked far more than the other.

python benchmarks/fairness.py --version models/minilm/1
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from processes import Cores, Launch, free_ports, running
from servers import SERVERS, Place

from tidemill.client import AsyncClient

_LENGTH = 16


@dataclass
class Crowd:
    """Callers of one model who ask again once answered.

    Attributes:
        model: What they ask.
        size: How many they are.
        seconds: How long each answer took.
    """

    model: str
    size: int
    seconds: list[float] = field(default_factory=list)

    async def ask(self, client: AsyncClient, end: float) -> None:
        """Ask until the time is over."""

        async def caller() -> None:
            feed = {name: np.ones((1, _LENGTH), np.int64) for name in ("input_ids", "attention_mask")}
            while (begun := time.perf_counter()) < end:
                await client.infer(self.model, feed)
                self.seconds.append(time.perf_counter() - begun)

        await asyncio.gather(*(caller() for _ in range(self.size)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--version", type=Path, default=Path("models/minilm/1"), help="the bundle that is served twice")
    parser.add_argument("--callers", type=int, nargs=2, default=(32, 2), help="of the one and of the other")
    parser.add_argument("--seconds", type=float, default=5.0, help="of each stretch")
    parser.add_argument("--rounds", type=int, default=3)
    settings = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        repository = Path(folder, "models")
        for name in ("one", "other"):
            shutil.copytree(settings.version.resolve(), repository / name / "1")
        place = Place(repository, "one", tuple(free_ports(4)), 0)
        launch: Launch = SERVERS["tidemill"].launch(place)
        with running(launch, Cores.chosen().server, Path(folder, "log")):
            asyncio.run(_compare(settings, f"http://127.0.0.1:{place.ports[0]}"))


async def _compare(settings: argparse.Namespace, url: str) -> None:
    alone, beside, crowd = [], [], []
    async with AsyncClient(url) as client:
        await _stretch(client, [Crowd("one", 4), Crowd("other", 4)], 1.0)
        for _ in range(settings.rounds):
            alone += await _stretch(client, [Crowd("other", settings.callers[1])], settings.seconds)
            both = [Crowd("one", settings.callers[0]), Crowd("other", settings.callers[1])]
            many, few = await _stretch(client, both, settings.seconds)
            beside.append(few)
            crowd.append(many)
    many_callers, few_callers = settings.callers
    print(f"{'callers':22} {'answers/s':>10} {'p50 ms':>8} {'p99 ms':>8}")
    for name, crowds in (
        (f"{few_callers} alone", alone),
        (f"{few_callers} beside {many_callers}", beside),
        (f"{many_callers} beside {few_callers}", crowd),
    ):
        seconds = np.concatenate([one.seconds for one in crowds])
        rate = len(seconds) / settings.seconds / settings.rounds
        p50, p99 = np.quantile(seconds, [0.5, 0.99]) * 1e3
        print(f"{name:22} {rate:10.0f} {p50:8.2f} {p99:8.2f}")


async def _stretch(client: AsyncClient, crowds: list[Crowd], seconds: float) -> list[Crowd]:
    end = time.perf_counter() + seconds
    await asyncio.gather(*(crowd.ask(client, end) for crowd in crowds))
    return crowds


if __name__ == "__main__":
    main()
