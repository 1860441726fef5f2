"""One load, measured in windows until they agree; knows neither files nor screens."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from tidemill.bench.crew import Crew
from tidemill.bench.result import Result
from tidemill.bench.samples import Samples
from tidemill.bench.server_shares import ServerShares
from tidemill.bench.settings import Load, Settings, Windows

__all__ = ["Statistics", "Window", "agree", "measure"]

Statistics: TypeAlias = Callable[[], Mapping[str, Any] | None]
"""Asks the server for the statistics of the model; None if it has none."""

_TOO_BUSY = 0.85


@dataclass(frozen=True)
class Window:
    """One stretch: what was seen, and the server's statistics at its start and end."""

    samples: Samples
    before: Mapping[str, Any] | None
    after: Mapping[str, Any] | None

    @property
    def rate(self) -> float:
        """Answers a second."""
        return float(self.samples.right.sum()) / self.samples.seconds

    @property
    def latency(self) -> float:
        """The mean in seconds; NaN if nothing was answered."""
        right = self.samples.latencies[self.samples.right]
        return float(right.mean()) if len(right) else float("nan")


def measure(
    settings: Settings,
    load: Load,
    requests: Sequence[bytes],
    *,
    rows: float = 1.0,
    statistics: Statistics = lambda: None,
    tell: Callable[[str], None] = lambda _: None,
    sleep: Callable[[float], None] = time.sleep,
) -> Result:
    """Make a load and sum up its last windows.

    Args:
        settings: Where to and how long.
        load: What to make.
        requests: What to send.
        rows: That each of them asks for, on average.
        statistics: The server's.
        tell: Told after each window.
        sleep: Waits while the load runs.

    Raises:
        TidemillError: A process of the load ended.
    """
    processes = settings.processes or 1
    while True:
        with Crew(settings, load, requests, processes) as crew:
            sleep(settings.windows.warmup_seconds)
            busy = max(crew.take().cpu_seconds) / max(settings.windows.warmup_seconds, 1e-9)
            more = min(processes * 2, _most_processes(load))
            if settings.processes or busy < _TOO_BUSY or more == processes:
                windows, steady = _windows(crew, settings.windows, statistics, tell, sleep)
                break
        processes = more
    samples = Samples.joined([window.samples for window in windows], apart=True)
    first, last = windows[0].before, windows[-1].after
    server = ServerShares.between(first, last) if first and last else None
    return Result.of(load, samples, steady=steady, rows=rows, server=server)


def _windows(
    crew: Crew, windows: Windows, statistics: Statistics, tell: Callable[[str], None], sleep: Callable[[float], None]
) -> tuple[list[Window], bool]:
    """The last windows, and whether they agree."""
    last: deque[Window] = deque(maxlen=windows.needed)
    before = statistics()
    crew.take()
    for number in range(1, windows.most + 1):
        sleep(windows.seconds)
        samples, after = crew.take(), statistics()
        last.append(Window(samples, before, after))
        before = after
        tell(f"window {number}: {last[-1].rate:,.0f}/s, mean {last[-1].latency * 1e3:.2f} ms")
        if len(last) == windows.needed and agree(last, windows.tolerance):
            return list(last), True
    return list(last), False


def agree(windows: Sequence[Window] | deque[Window], tolerance: float) -> bool:
    """Whether rate and mean latency of each window lie near the mean of all."""
    for values in ([it.rate for it in windows], [it.latency for it in windows]):
        mean = float(np.mean(values))
        # NaN, where nothing was answered, is near nothing.
        if not all(abs(value - mean) <= tolerance * mean for value in values):
            return False
    return True


def _most_processes(load: Load) -> int:
    """All cores but one, which the server needs if it is on this machine."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(cores - 1, load.concurrency or cores))
