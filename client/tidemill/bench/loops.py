"""The two ways of making load: a closed loop of callers, and an open loop that keeps to its schedule."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import deque
from collections.abc import Coroutine, Iterator, Sequence
from functools import partial
from typing import Any

from tidemill.bench.arrivals import Alarm
from tidemill.bench.connections import Lane, Open
from tidemill.bench.samples import Recorder
from tidemill.errors import TidemillError

__all__ = ["ClosedLoop", "OpenLoop"]

_SECONDS_BETWEEN_TRIES = 0.1
_FIRST_LANES = 8


class _Loop:
    """What both have: lanes, a recorder, and tasks that open lost connections again."""

    def __init__(self, open_connection: Open, requests: Sequence[bytes], recorder: Recorder) -> None:
        self._open = open_connection
        self._requests = itertools.cycle(requests)
        self._recorder = recorder
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopped = False
        self.lanes: list[Lane] = []

    def expire(self, timeout: float) -> None:
        """Give up requests that have taken longer than `timeout` seconds."""
        now = time.perf_counter()
        for lane in self.lanes:
            lane.expire(now, timeout)

    def stop(self) -> None:
        """Send no more; what is in flight is forgotten."""
        self._stopped = True
        for task in self._tasks:
            task.cancel()
        for lane in self.lanes:
            lane.close()

    async def _connect(self, lane: Lane) -> None:
        """Return once the lane stands; each failed try counts as a failed request."""
        while not lane.usable:
            try:
                await lane.connect()
            except TidemillError as error:
                now = time.perf_counter()
                self._recorder.add(now, now, error)
                await asyncio.sleep(_SECONDS_BETWEEN_TRIES)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


class ClosedLoop(_Loop):
    """So many callers, each of whom asks again as soon as the answer is there."""

    def start(self, callers: int) -> None:
        """Connect the callers; each begins when its connection stands."""
        self.lanes = [Lane(self._open) for _ in range(callers)]
        for lane in self.lanes:
            self._spawn(self._begin(lane))

    async def _begin(self, lane: Lane) -> None:
        await self._connect(lane)
        self._ask(lane)

    def _ask(self, lane: Lane) -> None:
        lane.send(next(self._requests), partial(self._answered, lane, time.perf_counter()))

    def _answered(self, lane: Lane, asked: float, error: Exception | None) -> None:
        self._recorder.add(asked, asked, error)
        if self._stopped:
            return
        if lane.usable:
            self._ask(lane)
        else:
            self._spawn(self._begin(lane))


class OpenLoop(_Loop):
    """Requests at their times, whatever the server does: callers do not wait for each other.

    A request is late if no connection is free or this process is busy. Its latency counts from when it was to be sent,
    so that a server that stalls is charged for all who would have asked meanwhile (coordinated omission).
    """

    _alarm: Alarm | None = None

    def start(self, times: Iterator[float], most: int) -> None:
        """Send at `times`, on the clock of `time.perf_counter`, over at most so many connections."""
        self._most = most
        self._waiting: deque[tuple[float, bool]] = deque()
        self._free: list[Lane] = []
        for _ in range(min(_FIRST_LANES, most)):
            self._add_lane()
        self._alarm = Alarm(times, self._due, asyncio.get_running_loop())

    def stop(self) -> None:
        """Send no more; what is in flight is forgotten."""
        if self._alarm:
            self._alarm.stop()
        super().stop()

    def _due(self, times: list[float]) -> None:
        for at in times:
            waited = not self._free
            self._waiting.append((at, waited))
            if waited and len(self.lanes) < self._most:
                self._add_lane()
            self._dispatch()

    def _dispatch(self) -> None:
        while self._waiting and self._free:
            (intended, waited), lane = self._waiting.popleft(), self._free.pop()
            done = partial(self._answered, lane, intended, waited)
            lane.send(next(self._requests), done)

    def _answered(self, lane: Lane, intended: float, waited: bool, error: Exception | None) -> None:
        self._recorder.add(intended, lane.sent, error, waited=waited)
        if not self._stopped:
            self._release(lane)

    def _release(self, lane: Lane) -> None:
        if lane.usable:
            self._free.append(lane)
            self._dispatch()
        else:
            self._spawn(self._begin(lane))

    def _add_lane(self) -> None:
        lane = Lane(self._open)
        self.lanes.append(lane)
        self._spawn(self._begin(lane))

    async def _begin(self, lane: Lane) -> None:
        await self._connect(lane)
        self._release(lane)
