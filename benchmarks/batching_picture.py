"""Draws what three policies make of the same bursts of requests: the queue, the batches and their padding over time."""

from __future__ import annotations

import argparse
import asyncio
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np

from tidemill.batching import BatchRecord
from tidemill.bundle.config import ModelConfig
from tidemill.engine import Instance
from tidemill.repository.loading import open_instance, warm
from tidemill.repository.running import RunningModel
from tidemill.repository.starting import plan_batching, start

_PADS = {"input_ids": 0, "attention_mask": 0}
POLICIES = {
    "fixed, equal shapes": {"batching": {"policy": "fixed"}},
    "fixed, padded by up to 15 %": {"batching": {"policy": "fixed", "ragged": {"pad": _PADS}}},
    "cost": {"batching": {"policy": "cost", "ragged": {"pad": _PADS}}},
}
_OWN, _PADDING, _QUEUE = "#2a6f97", "#e07a5f", "#6c757d"


@dataclass
class Seen:
    """What happened, in seconds since the first burst.

    Attributes:
        queue: Requests that waited, by time.
        batches: When each batch began and ended, and what it was.
    """

    queue: list[tuple[float, int]] = field(default_factory=list)
    batches: list[tuple[float, float, BatchRecord]] = field(default_factory=list)


def main() -> None:
    settings = _settings()
    instance = open_instance(settings.version, ModelConfig(threads=settings.threads))
    runs = {name: asyncio.run(_watch(instance, name, settings)) for name in POLICIES}
    _draw(runs, settings)


def _settings() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--version", type=Path, default=Path("models/minilm/1"), help="the bundle to run")
    parser.add_argument("--picture", type=Path, default=Path("docs/batching.png"), help="the file to write")
    parser.add_argument("--bursts", type=int, default=2, help="how often requests come")
    parser.add_argument("--size", type=int, default=32, help="requests of a burst")
    parser.add_argument("--gap", type=float, default=0.8, help="seconds between bursts")
    parser.add_argument("--lengths", nargs=2, type=int, default=[4, 64], help="tokens of a request")
    parser.add_argument("--threads", type=int, default=2, help="threads of one run")
    parser.add_argument("--seed", type=int, default=0, help="of the lengths")
    return parser.parse_args()


async def _watch(instance: Instance, name: str, settings: argparse.Namespace) -> Seen:
    config = ModelConfig.model_validate(POLICIES[name])
    seen, begun = Seen(), time.monotonic()

    def observe(record: BatchRecord) -> None:
        now = time.monotonic() - begun
        seen.batches.append((now - record.seconds, now, record))
        seen.queue.append((now, model.queued))

    model = start(instance, plan_batching(instance, warm(instance, config), config), config, observe, time.monotonic)
    await _bursts(model, seen, settings)  # warms up
    seen.queue.clear()
    seen.batches.clear()
    begun = time.monotonic()
    await _bursts(model, seen, settings, begun)
    await model.drain()
    model.close()
    return seen


async def _bursts(model: RunningModel, seen: Seen, settings: argparse.Namespace, begun: float = 0.0) -> None:
    rng = np.random.default_rng(settings.seed)
    asked = []
    for _ in range(settings.bursts):
        for length in rng.integers(settings.lengths[0], settings.lengths[1] + 1, settings.size):
            ids = rng.integers(0, 1000, (1, length))
            feed = {"input_ids": ids, "attention_mask": np.ones_like(ids)}
            asked.append(model.submit(feed, {"batch": 1, "seq": int(length)}))
        seen.queue.append((time.monotonic() - begun, model.queued))
        await asyncio.sleep(settings.gap)
    await asyncio.gather(*asked)


def _draw(runs: dict[str, Seen], settings: argparse.Namespace) -> None:
    mpl.use("Agg")
    from matplotlib import pyplot
    from matplotlib.patches import Rectangle

    figure, axes = pyplot.subplots(2, len(runs), figsize=(12, 5.2), sharex=True, sharey="row")
    for (name, seen), (above, below) in zip(runs.items(), axes.T, strict=True):
        times, depths = zip(*sorted(seen.queue), strict=True)
        above.fill_between(times, depths, step="post", color=_QUEUE, alpha=0.5)
        above.set_title(f"{name}\n{_told(seen)}", fontsize=10)
        for begun, ended, record in seen.batches:
            _draw_batch(below, begun, ended, record)
        below.set_xlabel("seconds")
    axes[0][0].set_ylabel("requests waiting")
    axes[1][0].set_ylabel("tokens a run")
    handles = [Rectangle((0, 0), 1, 1, color=color) for color in (_OWN, _PADDING)]
    axes[1][-1].legend(handles, ["of requests", "padding"], fontsize=9)
    figure.suptitle(f"Bursts of {settings.size} requests of {settings.lengths[0]} to {settings.lengths[1]} tokens")
    figure.tight_layout()
    figure.savefig(settings.picture, dpi=90)


def _draw_batch(axis: Any, begun: float, ended: float, record: BatchRecord) -> None:
    tokens = record.rows * record.length
    own = tokens * (1 - record.padding)
    axis.bar(begun, own, ended - begun, align="edge", color=_OWN, edgecolor="white", linewidth=0.4)
    axis.bar(begun, tokens - own, ended - begun, own, align="edge", color=_PADDING, edgecolor="white", linewidth=0.4)


def _told(seen: Seen) -> str:
    run = sum(ended - begun for begun, ended, _ in seen.batches)
    tokens = sum(record.rows * record.length for *_, record in seen.batches)
    padding = sum(record.rows * record.length * record.padding for *_, record in seen.batches) / tokens
    return f"{len(seen.batches)} runs, {run:.2f} s busy, {padding:.0%} padding"


if __name__ == "__main__":
    main()
