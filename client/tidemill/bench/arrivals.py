"""When requests of an open loop are to be sent, and a clock that wakes a loop in time; knows no requests."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator

import numpy as np

from tidemill.bench.settings import Load

__all__ = ["Alarm", "arrival_times"]

_DRAWN_AT_ONCE = 1024


def arrival_times(load: Load, seed: int) -> Iterator[float]:
    """Seconds after the start of each request, without end.

    Poisson arrivals have exponential gaps: callers who do not know of each other.
    """
    rng, start = np.random.default_rng(seed), 0.0
    mean = 1.0 / load.rate
    while True:
        size = _DRAWN_AT_ONCE
        gaps = rng.exponential(mean, size) if load.arrivals == "poisson" else np.full(size, mean)
        times = start + np.cumsum(gaps)
        start = float(times[-1])
        yield from times.tolist()


class Alarm:
    """Tells an event loop of the times that have come, to about 0.1 ms; its own timers round to whole milliseconds.

    Args:
        times: When, on the clock of `time.perf_counter`, in order.
        due: Called in the loop with the times that have come since the last call.
        loop: The loop.
    """

    def __init__(
        self, times: Iterator[float], due: Callable[[list[float]], None], loop: asyncio.AbstractEventLoop
    ) -> None:
        self._times, self._due, self._loop = times, due, loop
        self._come: deque[float] = deque()
        self._told = False
        self._stopped = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Tell no more."""
        self._stopped = True

    def _run(self) -> None:
        for at in self._times:
            if (left := at - time.perf_counter()) > 0:
                time.sleep(left)
            if self._stopped:
                return
            self._come.append(at)
            if not self._told:
                self._told = True
                self._loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        # Before taking: a time that comes meanwhile is told once more rather than never.
        self._told = False
        come = [self._come.popleft() for _ in range(len(self._come))]
        if come and not self._stopped:
            self._due(come)
