"""A process that makes load until it is told to stop; it knows one load and not what is made of its samples."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection

from tidemill.bench.arrivals import arrival_times
from tidemill.bench.connections import opener
from tidemill.bench.loops import ClosedLoop, OpenLoop
from tidemill.bench.samples import Recorder, Samples
from tidemill.bench.settings import Load, Settings

__all__ = ["Job", "work"]

_SECONDS_BETWEEN_SWEEPS = 0.25


@dataclass(frozen=True, slots=True)
class Job:
    """What one process does of a load.

    Attributes:
        settings: Of the measurement.
        load: The whole load.
        requests: What to send, one after the other, from the start again.
        share: Which of the processes this is, from 0.
        processes: How many there are.
    """

    settings: Settings
    load: Load
    requests: Sequence[bytes]
    share: int = 0
    processes: int = 1

    @property
    def callers(self) -> int:
        """This process's part of the callers."""
        whole, left = divmod(self.load.concurrency, self.processes)
        return whole + (self.share < left)

    def times(self, start: float) -> Iterator[float]:
        """This process's part of the schedule: a split of Poisson arrivals is Poisson again, of constant ones even."""
        part = replace(self.load, rate=self.load.rate / self.processes)
        shift = start + self.share / self.load.rate * (self.load.arrivals == "constant")
        return (shift + at for at in arrival_times(part, self.settings.seed + self.share))


def work(job: Job, pipe: Connection) -> None:
    """Make load; answer "take" with the samples since the last time, and end with "stop" or with the parent."""
    # An interrupt on the terminal is the parent's to handle.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(_work(job, pipe))


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """The faster loop where it is installed."""
    try:
        from uvloop import new_event_loop
    except ModuleNotFoundError:
        return None
    return new_event_loop


async def _work(job: Job, pipe: Connection) -> None:
    recorder, stopped = Recorder(), asyncio.Event()
    load = _start(job, recorder)
    # A thread, for a pipe that a loop watches no longer blocks, and a full one would then lose an answer.
    orders = threading.Thread(
        target=_obey, args=(pipe, recorder, stopped, asyncio.get_running_loop()), daemon=True, name="orders"
    )
    orders.start()
    try:
        await _sweep(load, job.settings.timeout_seconds, stopped)
    finally:
        load.stop()


def _obey(pipe: Connection, recorder: Recorder, stopped: asyncio.Event, loop: asyncio.AbstractEventLoop) -> None:
    async def take() -> Samples:
        return recorder.take()

    try:
        while pipe.recv() == "take":
            pipe.send(asyncio.run_coroutine_threadsafe(take(), loop).result())
    except (EOFError, BrokenPipeError):
        # The parent is gone, or has closed its end: both mean to stop.
        pass
    loop.call_soon_threadsafe(stopped.set)


def _start(job: Job, recorder: Recorder) -> ClosedLoop | OpenLoop:
    open_connection = opener(job.settings, job.load.wire)
    # Processes begin at different requests, so that equal ones do not always meet.
    first = len(job.requests) * job.share // job.processes
    requests = [*job.requests[first:], *job.requests[:first]]
    if job.load.concurrency:
        closed = ClosedLoop(open_connection, requests, recorder)
        closed.start(job.callers)
        return closed
    open_loop = OpenLoop(open_connection, requests, recorder)
    open_loop.start(job.times(time.perf_counter()), max(1, job.settings.most_inflight // job.processes))
    return open_loop


async def _sweep(loop: ClosedLoop | OpenLoop, timeout: float, stopped: asyncio.Event) -> None:
    while not stopped.is_set():
        try:
            async with asyncio.timeout(_SECONDS_BETWEEN_SWEEPS):
                await stopped.wait()
        except TimeoutError:
            loop.expire(timeout)
