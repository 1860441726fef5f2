"""How many runs at once, of how many threads each, make the most of the processors: measured where it is asked for.

More runs at once answer more requests a second, fewer answer a single one sooner; `instances: auto` asks for the first.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeAlias

from tidemill.bundle.config import ModelConfig
from tidemill.engine.instance import Instance
from tidemill.engine.threads import available_threads
from tidemill.errors import TidemillError
from tidemill.protocol.types import Array
from tidemill.repository.kept_costs import KeptCosts, Measured
from tidemill.repository.loading import example

__all__ = ["Calibrated", "calibrate", "choose", "splits"]

_LOG = logging.getLogger("tidemill.repository")
_LAYOUT = 1  # of what is measured; raised when it is measured otherwise
_SECONDS = 0.3
"""How long each split is measured."""
_ROUNDS = 2
_GAIN = 0.9
"""By how much more runs at once must be quicker, per run, to be worth a single request's longer time."""

Calibrated: TypeAlias = tuple[ModelConfig, Instance]
"""The configuration with the chosen split, and the model loaded by it."""
Open: TypeAlias = Callable[[ModelConfig], Instance]


def calibrate(
    config: ModelConfig, open_model: Open, kept: KeptCosts | None, processors: int | None = None
) -> Calibrated:
    """Find the split of the processors that answers most requests a second; takes a second where it is not known yet.

    Args:
        config: How the model is served, with `instances: auto`.
        open_model: Loads it.
        kept: Where measurements are kept; None to measure at every load.
        processors: How many there are; those that this process may use if not given.

    Raises:
        TidemillError: The model cannot be loaded.
    """
    candidates = splits(processors or available_threads(), config.threads)
    configs = {split: _with(config, split) for split in candidates}
    instance = open_model(configs[candidates[0]])
    if len(candidates) == 1 or any("CPU" not in provider for provider in instance.providers):
        return configs[candidates[0]], instance
    facts = {"kind": "instances", "layout": _LAYOUT, "graph": instance.key, "splits": candidates}

    def measure() -> Measured:
        return _measure(configs, open_model, (candidates[0], instance))

    measured = kept.recall(facts, measure) if kept and instance.key else measure()
    chosen = choose(measured, candidates)
    _LOG.info("instances: auto chose %d of %d thread(s): %s", *chosen, _told(measured))
    if chosen == candidates[0]:
        return configs[chosen], instance
    instance.close()
    return configs[chosen], open_model(configs[chosen])


def splits(processors: int, threads: int | None) -> list[tuple[int, int]]:
    """The ways to share the processors: (instances, threads of each), fewest instances first.

    Args:
        processors: How many there are.
        threads: Threads of a run, where that is given.
    """
    if threads is not None:
        return [(count, threads) for count in _halves(max(1, processors // threads))]
    return [(count, max(1, processors // count)) for count in _halves(processors)]


def choose(measured: Measured, candidates: list[tuple[int, int]]) -> tuple[int, int]:
    """The split that answers most, of those that are hardly behind it the one with fewest instances.

    Args:
        measured: Seconds by split in which one run ends somewhere.
        candidates: The splits, fewest instances first.
    """
    best = candidates[0]
    for split in candidates[1:]:
        if split in measured and measured[split] < measured.get(best, 0.0) * _GAIN:
            best = split
    return best


def _halves(most: int) -> list[int]:
    """1, 2, 4, ... and `most`."""
    return sorted({most, *(1 << place for place in range(most.bit_length()) if 1 << place <= most)})


def _with(config: ModelConfig, split: tuple[int, int]) -> ModelConfig:
    return config.model_copy(update={"instances": split[0], "threads": split[1]})


def _measure(
    configs: Mapping[tuple[int, int], ModelConfig], open_model: Open, first: tuple[tuple[int, int], Instance]
) -> Measured:
    measured: Measured = {}
    for split, config in configs.items():
        with _opened(split, config, open_model, first) as instance:
            try:
                feed = example(instance, config)
            except TidemillError as error:
                _LOG.warning("instances: auto has nothing to run, the model refuses made-up inputs: %s", error)
                return {}
            measured[split] = min(_seconds_a_run(instance, feed, split[0]) for _ in range(_ROUNDS))
    return measured


@contextmanager
def _opened(
    split: tuple[int, int], config: ModelConfig, open_model: Open, first: tuple[tuple[int, int], Instance]
) -> Iterator[Instance]:
    """The model by a split; the first is loaded already, and stays."""
    if split == first[0]:
        yield first[1]
        return
    instance = open_model(config)
    try:
        yield instance
    finally:
        instance.close()


def _seconds_a_run(instance: Instance, feed: Mapping[str, Array], count: int) -> float:
    """The time by the clock divided by the runs that ended in it, with so many under way at any moment."""
    begun = time.perf_counter()
    end = begun + _SECONDS

    def run_on() -> int:
        runs = 0
        while time.perf_counter() < end or not runs:
            instance.run(feed)
            runs += 1
        return runs

    with ThreadPoolExecutor(count, "tidemill-calibration") as threads:
        runs = sum(future.result() for future in [threads.submit(run_on) for _ in range(count)])
    return (time.perf_counter() - begun) / runs


def _told(measured: Measured) -> str:
    told = [f"{count}x{threads} {seconds * 1e3:.2f} ms a run" for (count, threads), seconds in measured.items()]
    return ", ".join(told) or "nothing was measured"
