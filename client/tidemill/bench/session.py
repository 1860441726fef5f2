"""A whole run: the data made or taken, each load measured, the report put together; knows no files and no screen."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from tidemill.bench.encoding import encode
from tidemill.bench.inputs import Generator
from tidemill.bench.measure import measure
from tidemill.bench.result import Report, Result
from tidemill.bench.settings import Load, Settings
from tidemill.bench.shared_regions import shared_requests
from tidemill.errors import ConfigError
from tidemill.protocol.types import Array

if TYPE_CHECKING:
    from tidemill.bench.target import Target

__all__ = ["Watcher", "bench", "generated"]

_MOST_REQUESTS = 256
_MOST_BYTES = 64 << 20

Feed = Mapping[str, Array]


class Watcher(Protocol):
    """Is told how a run goes."""

    def start(self, load: Load) -> None:
        """A load begins."""

    def tell(self, text: str) -> None:
        """Something was seen of it."""

    def finish(self, result: Result) -> None:
        """It is measured."""


def generated(generator: Generator, seed: int) -> list[dict[str, Array]]:
    """Requests enough to be unlike each other, and few enough for memory."""
    first = generator.requests(seed, 1)[0]
    size = sum(array.nbytes for array in first.values())
    return generator.requests(seed, max(1, min(_MOST_REQUESTS, _MOST_BYTES // max(size, 1))))


def bench(settings: Settings, loads: Sequence[Load], feeds: Sequence[Feed], watcher: Watcher) -> Report:
    """Measure the loads one after the other.

    Args:
        settings: Where and how long.
        loads: What to make.
        feeds: The requests' inputs, sent in turn.
        watcher: Told how it goes.

    Raises:
        ConfigError: There is nothing to send.
        TidemillError: The server refuses the first request, or a process of the load ended.
    """
    # Here, for the processes of the load import this room and need no client.
    from tidemill.bench.target import Target

    if not feeds or not loads:
        raise ConfigError("there is nothing to measure: give at least one load and one request")
    for load in loads:
        settings.url(load.wire)
    with Target(settings) as target:
        # What the server refuses would be measured as a fast answer.
        target.infer(feeds[0])
        about = {**target.about(), "inputs": _shapes(feeds)}
        results = [_measure(settings, load, feeds, target, watcher) for load in loads]
    return Report(settings.model, results, _plain(settings), machine(), about)


def _measure(settings: Settings, load: Load, feeds: Sequence[Feed], target: Target, watcher: Watcher) -> Result:
    watcher.start(load)
    rows = float(np.mean([_rows(feed) for feed in feeds]))
    with ExitStack() as stack:
        if load.wire == "shm":
            requests = stack.enter_context(shared_requests(settings, feeds, target.infer, target))
        else:
            requests = encode(settings, load.wire, feeds)
        result = measure(settings, load, requests, rows=rows, statistics=target.statistics, tell=watcher.tell)
    watcher.finish(result)
    return result


def _rows(feed: Feed) -> int:
    first = next(iter(feed.values()), None)
    return int(first.shape[0]) if first is not None and first.ndim else 1


def _shapes(feeds: Sequence[Feed]) -> dict[str, str]:
    """What was sent, by input: the dims, from the least to the greatest."""
    found = {}
    for name in feeds[0]:
        shapes = np.array([feed[name].shape for feed in feeds])
        dims = zip(shapes.min(axis=0).tolist(), shapes.max(axis=0).tolist(), strict=True)
        found[name] = f"[{', '.join(str(low) if low == high else f'{low}..{high}' for low, high in dims)}]"
    return found


def _plain(settings: Settings) -> dict[str, Any]:
    """The settings without the headers' values, which may be keys."""
    return {**asdict(settings), "headers": [name for name, _ in settings.headers]}


def machine() -> dict[str, Any]:
    """Where the load is made, and by what."""
    return {
        "cpus": os.cpu_count(),
        "architecture": platform.machine(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "tidemill": version("tidemill"),
        "numpy": np.__version__,
    }
