"""Requests of mixed lengths under each way of joining them, side by side in one run: when does a batch pay?"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from tidemill.batching import BatchRecord
from tidemill.bundle.config import ModelConfig
from tidemill.engine import Instance
from tidemill.repository.loading import open_instance, warm
from tidemill.repository.running import RunningModel
from tidemill.repository.starting import plan_batching, start

_PADS = {"input_ids": 0, "attention_mask": 0}
POLICIES = {
    "unbatched": {"max_batch_size": 0},
    "equal shapes": {"batching": {"policy": "fixed"}},
    "padded, 32 rows": {"batching": {"policy": "fixed", "ragged": {"pad": _PADS, "max_padding": 0.99}}},
    "padded by 15 %": {"batching": {"policy": "fixed", "ragged": {"pad": _PADS}}},
    "measured cost": {"batching": {"policy": "cost", "ragged": {"pad": _PADS}}},
}
_WORDS = 1000
"""Token ids to draw from; which ones does not matter to the time."""


@dataclass
class Contender:
    """One policy and what it achieved.

    Attributes:
        name: The policy.
        model: What runs by it.
        rates: By round: requests a second, and a second of CPU time.
        alone: By round: seconds in which half of the requests of a single caller are answered.
        batches: What was run for many callers.
    """

    name: str
    model: RunningModel
    rates: list[tuple[float, float]] = field(default_factory=list)
    alone: list[float] = field(default_factory=list)
    batches: list[BatchRecord] = field(default_factory=list)


def main() -> None:
    settings = _settings()
    asyncio.run(_compare(settings))


def _settings() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--version", type=Path, default=Path("models/minilm/1"), help="the bundle to run")
    parser.add_argument("--lengths", nargs="+", default=["4-16", "8-32", "8-64", "8-256"], help="tokens of a request")
    parser.add_argument("--concurrency", type=int, default=32, help="closed loops")
    parser.add_argument("--threads", type=int, default=2, help="threads of one run")
    parser.add_argument("--rounds", type=int, default=5, help="stretches of each contender, in shuffled order")
    parser.add_argument("--seconds", type=float, default=1.0, help="length of a stretch")
    parser.add_argument("--single", type=int, default=40, help="requests of a single caller, after each stretch")
    parser.add_argument("--seed", type=int, default=0, help="of lengths and order")
    return parser.parse_args()


async def _compare(settings: argparse.Namespace) -> None:
    instance = open_instance(settings.version, ModelConfig(threads=settings.threads))
    for span in settings.lengths:
        contenders = [_contender(name, instance) for name in POLICIES]
        rng = random.Random(settings.seed)
        for turn in range(settings.rounds + 1):
            for contender in rng.sample(contenders, len(contenders)):
                await _measure(contender, span, settings, counts=turn > 0)  # the first one warms up
        _print(span, contenders)
        for contender in contenders:
            await contender.model.drain()
            contender.model.close()


def _contender(name: str, instance: Instance) -> Contender:
    config = ModelConfig.model_validate(POLICIES[name])
    plan = plan_batching(instance, warm(instance, config), config)
    batches: list[BatchRecord] = []
    return Contender(name, start(instance, plan, config, batches.append, time.monotonic), batches=batches)


async def _measure(contender: Contender, span: str, settings: argparse.Namespace, *, counts: bool) -> None:
    rate = await _stretch(contender.model, span, settings)
    before = len(contender.batches)
    alone = await _alone(contender.model, span, settings)
    del contender.batches[before:]
    if counts:
        contender.rates.append(rate)
        contender.alone.append(alone)


async def _alone(model: RunningModel, span: str, settings: argparse.Namespace) -> float:
    """The median latency of one caller, who waits for nobody."""
    rng = np.random.default_rng(settings.seed)
    seconds = []
    for _ in range(settings.single):
        begun = time.perf_counter()
        await _ask(model, span, rng)
        seconds.append(time.perf_counter() - begun)
    return statistics.median(seconds)


async def _ask(model: RunningModel, span: str, rng: np.random.Generator) -> None:
    shortest, longest = map(int, span.split("-"))
    length = int(rng.integers(shortest, longest + 1))
    ids = rng.integers(0, _WORDS, (1, length))
    await model.submit({"input_ids": ids, "attention_mask": np.ones_like(ids)}, {"batch": 1, "seq": length})


async def _stretch(model: RunningModel, span: str, settings: argparse.Namespace) -> tuple[float, float]:
    """Requests a second, and a second of CPU time, of so many callers who ask again as soon as they are answered."""
    rng = np.random.default_rng(settings.seed)
    begun, cpu = time.monotonic(), time.process_time()
    end = begun + settings.seconds
    answered = 0

    async def caller() -> None:
        nonlocal answered
        while time.monotonic() < end:
            await _ask(model, span, rng)
            answered += 1

    await asyncio.gather(*(caller() for _ in range(settings.concurrency)))
    return answered / (time.monotonic() - begun), answered / (time.process_time() - cpu)


def _print(span: str, contenders: list[Contender]) -> None:
    heads = ("requests/s", "x unbatched", "x the better", "by CPU time", "rows", "padding", "p50 alone")
    print(f"\n{span} tokens\n{'':18}{''.join(f'{head:>14}' for head in heads)}")
    better = _better(*contenders[:2])
    for contender in contenders:
        elapsed, cpu = (_ratio(contender.rates, contenders[0].rates, clock) for clock in (0, 1))
        beside = _ratio(contender.rates, better, 0)
        alone = statistics.median(own / plain for own, plain in zip(contender.alone, contenders[0].alone, strict=True))
        rows = sum(batch.rows for batch in contender.batches)
        padded = sum(batch.rows * batch.length for batch in contender.batches)
        padding = sum(batch.padding * batch.rows * batch.length for batch in contender.batches) / max(padded, 1)
        rate = statistics.median(rate for rate, _ in contender.rates)
        size = rows / len(contender.batches)
        ratios = f"{rate:14.0f}{elapsed:14.2f}{beside:14.2f}{cpu:14.2f}"
        print(f"{contender.name:18}{ratios}{size:14.1f}{padding:14.1%}{alone:14.2f}", flush=True)


def _better(one: Contender, other: Contender) -> list[tuple[float, float]]:
    """Of two contenders the quicker one's rates."""
    return max(one.rates, other.rates, key=lambda rates: statistics.median(rate for rate, _ in rates))


def _ratio(own: list[tuple[float, float]], other: list[tuple[float, float]], clock: int) -> float:
    """The median of the rounds' ratios, so that a disturbance of a round hits both."""
    pairs = zip(own, other, strict=True)
    return statistics.median(rates[clock] / base[clock] for rates, base in pairs)


if __name__ == "__main__":
    main()
