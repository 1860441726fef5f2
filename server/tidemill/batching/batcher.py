"""Joins the requests that arrive together and has them run; knows its runner as a callable, not what it runs."""

from __future__ import annotations

import asyncio
import math
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from tidemill.batching.isolation import Runner
from tidemill.batching.options import BatchingOptions
from tidemill.batching.pace import Pace
from tidemill.batching.pending import Feed, Key, Pending, batch_key
from tidemill.batching.queue import Queue
from tidemill.batching.record import Observer
from tidemill.batching.run import Clock, Run, settle
from tidemill.errors import DeadlineExceeded, InvalidArgument, ShuttingDown

__all__ = ["Batcher"]


class Batcher:
    """Runs requests in batches on a number of instances; belongs to one event loop.

    Requests that arrive in one turn of the loop are joined. While an instance is idle nothing waits (unless a queue
    delay is set); while all are busy, the next batches gather. Runs that are known to be quick are made on the event
    loop itself, others on a thread an instance.

        batcher = Batcher(instance.run, BatchingOptions(max_batch_size=16))
        outputs = await batcher.infer({"x": x}, len(x))
    """

    def __init__(
        self,
        runner: Runner,
        options: BatchingOptions,
        *,
        instances: int = 1,
        clock: Clock = time.monotonic,
        observer: Observer | None = None,
    ) -> None:
        """Set up without starting anything.

        Args:
            runner: Called with arrays by input name, returns arrays by output name; on several threads at once if
                there are several instances.
            options: The limits of joining and waiting.
            instances: Runs that may be under way at once.
            clock: Seconds; deadlines are given in it.
            observer: Told of every batch after its run, on the event loop.
        """
        self._runner = runner
        self._options = options
        self._clock = clock
        self._observer = observer
        self._queue = Queue(options)
        self._pace = Pace()
        self._threads = ThreadPoolExecutor(instances, "tidemill-run")
        self._idle = instances
        self._unfinished: set[asyncio.Future[Any]] = set()
        self._scheduled = False
        self._timer: asyncio.TimerHandle | None = None
        self._stopping = False

    @property
    def queued(self) -> int:
        """Requests that wait for their run."""
        return len(self._queue)

    async def infer(self, feed: Feed, rows: int, deadline: float | None = None) -> Feed:
        """Run one request, joined with others where that is possible.

        Args:
            feed: Arrays by input name, each with `rows` rows on axis 0 (of any shape if requests are never joined).
            rows: The request's rows.
            deadline: When the answer stops being wanted, in the batcher's clock; covers waiting and running.

        Returns:
            Arrays by output name, `rows` rows each.

        Raises:
            InvalidArgument: More rows than `max_batch_size`, or an input with another number of rows.
            QueueFull: Too many requests wait.
            DeadlineExceeded: The deadline passed; raised when it does, not when the run ends.
            ShuttingDown: The batcher drains or is closed.
            TidemillError: What the run raised for this request; never for a neighbour's.
        """
        return await self.submit(feed, rows, deadline)

    def submit(self, feed: Feed, rows: int, deadline: float | None = None) -> asyncio.Future[Feed]:
        """Queue one request as `infer` does; cancelling the future takes it out of the queue."""
        if self._stopping:
            raise ShuttingDown("the model is being shut down and takes no more requests")
        loop, now = asyncio.get_running_loop(), self._clock()
        if deadline is not None and deadline <= now:
            raise DeadlineExceeded("the deadline had passed before the request was queued")
        pending = Pending(feed, rows, self._key(feed, rows), now, loop.create_future())
        self._queue.put(pending)
        self._unfinished.add(pending.future)
        timer = None if deadline is None else loop.call_later(deadline - now, _expire, pending, deadline)
        pending.future.add_done_callback(partial(self._leave, pending, timer))
        self._schedule(loop)
        return pending.future

    async def drain(self) -> None:
        """Take no more requests, run those that wait without delay, and return when the last run has ended."""
        self._stopping = True
        self._schedule(asyncio.get_running_loop())
        while self._unfinished:
            await asyncio.wait(self._unfinished)

    def close(self) -> None:
        """Take no more requests and fail those that wait; runs under way end and answer by themselves."""
        self._stopping = True
        for pending in self._queue.clear():
            settle(pending, ShuttingDown("the model was shut down before the request was run"))
        self._threads.shutdown(wait=False)

    def _key(self, feed: Feed, rows: int) -> Key:
        limit = self._options.max_batch_size
        if not limit:
            return ()
        if rows > limit:
            raise InvalidArgument(f"the request has {rows} rows, the model takes at most {limit} (max_batch_size)")
        return batch_key(feed, rows)

    def _schedule(self, loop: asyncio.AbstractEventLoop) -> None:
        """Dispatch in the loop's next turn, when everything that arrived in this one is queued."""
        if not self._scheduled:
            self._scheduled = True
            loop.call_soon(self._dispatch)

    def _dispatch(self) -> None:
        self._scheduled = False
        if self._timer:
            self._timer.cancel()
        loop = asyncio.get_running_loop()
        while self._idle:
            group = self._queue.take(self._clock(), hurry=self._stopping)
            if not group:
                self._sleep(loop)
                break
            if self._pace.is_below(self._options.inline_below):
                self._run_here(Run(group))
                # One run a turn: between two of them the loop serves its sockets.
                self._schedule(loop)
                break
            self._run_on_thread(Run(group), loop)

    def _sleep(self, loop: asyncio.AbstractEventLoop) -> None:
        now = self._clock()
        due = self._queue.next_due(now)
        if due < math.inf:
            self._timer = loop.call_later(max(0.0, due - now), self._dispatch)

    def _run_here(self, run: Run) -> None:
        run.execute(self._runner, self._clock)
        self._finish(run)

    def _run_on_thread(self, run: Run, loop: asyncio.AbstractEventLoop) -> None:
        self._idle -= 1
        done = loop.run_in_executor(self._threads, run.execute, self._runner, self._clock)
        self._unfinished.add(done)
        done.add_done_callback(partial(self._return, run))

    def _return(self, run: Run, done: asyncio.Future[None]) -> None:
        self._unfinished.discard(done)
        self._idle += 1
        self._finish(run)
        self._dispatch()

    def _finish(self, run: Run) -> None:
        record = run.answer()
        self._pace.record(record.run_seconds)
        if self._observer:
            self._observer(record)

    def _leave(self, pending: Pending, timer: asyncio.TimerHandle | None, _: asyncio.Future[Feed]) -> None:
        """Clear up after a request that was answered or whose caller went away."""
        self._unfinished.discard(pending.future)
        self._queue.discard(pending)
        if timer:
            timer.cancel()


def _expire(pending: Pending, deadline: float) -> None:
    settle(pending, DeadlineExceeded(f"there was no answer within {deadline - pending.enqueued:.3g} s"))
