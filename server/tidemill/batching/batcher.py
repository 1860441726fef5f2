"""Joins the requests that arrive together and has them run; knows its runner as a callable, not what it runs."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

from tidemill.batching.batch import join_parts, parts
from tidemill.batching.options import BatchingOptions
from tidemill.batching.order import Order, settle
from tidemill.batching.pace import Pace, Paces
from tidemill.batching.pending import Feed, Key, Pending, batch_key
from tidemill.batching.policy import FixedPolicy, Policy
from tidemill.batching.queue import Queue
from tidemill.batching.record import BatchRecord, Observer
from tidemill.batching.run import Clock, Run, Runner
from tidemill.batching.timed import Timed
from tidemill.batching.urgency import Urgency
from tidemill.errors import DeadlineExceeded, InvalidArgument, ShuttingDown

__all__ = ["RUN_THREADS", "AtOnce", "Batcher"]

RUN_THREADS = "tidemill-run"
"""How the names of threads begin on which models run."""


class AtOnce(NamedTuple):
    """A run that was made at once.

    Attributes:
        outputs: Arrays by output name.
        pace: How runs of its size fare.
        seconds: How long it took.
        busy: The processor time that it took; 0 if nobody asked.
    """

    outputs: Feed
    pace: Pace
    seconds: float
    busy: float


class Batcher:
    """Runs requests in batches on a number of instances; belongs to one event loop.

    Requests that arrive in one turn of the loop are joined. While an instance is idle nothing waits (unless a queue
    delay is set); while all are busy, the next batches gather. Runs that are known to be quick are made on the event
    loop itself, others on a thread an instance.

        batcher = Batcher(run, BatchingOptions(max_batch_size=16))
        outputs = await batcher.infer({"x": x}, len(x))
    """

    def __init__(
        self,
        runner: Runner,
        options: BatchingOptions,
        *,
        policy: Policy | None = None,
        clock: Clock = time.monotonic,
        observer: Observer | None = None,
    ) -> None:
        """Set up without starting anything.

        Args:
            runner: Called with arrays by input name and a Cancel (None on the event loop), returns arrays by output
                name; on several threads at once if there are several instances.
            options: The limits of joining and waiting.
            policy: Which of the waiting requests are joined; see `Queue`.
            clock: Seconds; deadlines are given in it.
            observer: Told of every batch after its run, on the event loop.
        """
        self._runner = runner
        self._options = options
        self._clock = clock
        self._observer = observer
        self._queue = Queue(options, policy)
        self._order = Order() if options.preserve_ordering else None
        self._paces = Paces(options.inline_below)
        self._threads = ThreadPoolExecutor(options.instances, RUN_THREADS)
        self._idle = options.instances
        self._under_way: dict[asyncio.Future[None], tuple[Run, float]] = {}
        self._unfinished: set[asyncio.Future[Any]] = set()
        self._scheduled = False
        self._timer: asyncio.TimerHandle | None = None
        self._stopping = self._hurrying = False
        # Where who is joined is more than a matter of who is there, the queue decides.
        plain = not (options.max_queue_delay or options.preferred_batch_sizes or options.ragged)
        self._may_run_at_once = plain and isinstance(policy, FixedPolicy | None)

    @property
    def queued(self) -> int:
        """Requests that wait for their run."""
        return len(self._queue)

    @property
    def busy(self) -> int:
        """Instances that are running now, on threads of their own."""
        return self._options.instances - self._idle

    @property
    def longest_run(self) -> float:
        """Seconds that the oldest run under way has taken by now; 0 if none is."""
        now = self._clock()
        return now - min([begun for _, begun in self._under_way.values()], default=now)

    async def infer(self, feed: Feed, rows: int, deadline: float | None = None, urgency: Urgency | None = None) -> Feed:
        """Run one request, joined with others where that is possible.

        Args:
            feed: Arrays by input name, each with `rows` rows on axis 0 (of any shape if requests are never joined).
            rows: The request's rows.
            deadline: When the answer stops being wanted, in the batcher's clock; covers waiting and running.
            urgency: The priority that the request asks for, and how long it may wait.

        Returns:
            Arrays by output name, `rows` rows each.

        Raises:
            InvalidArgument: More rows than `max_batch_size`, or an input with another number of rows.
            QueueFull: Too many requests wait.
            DeadlineExceeded: The deadline passed, or the request waited for longer than it may; raised when that
                happens, not when a run ends.
            ShuttingDown: The batcher drains or is closed.
            TidemillError: What the run raised for this request; never for a neighbour's.
        """
        return await self.submit(feed, rows, deadline, urgency)

    def submit(
        self, feed: Feed, rows: int, deadline: float | None = None, urgency: Urgency | None = None
    ) -> asyncio.Future[Feed]:
        """Queue one request as `infer` does; cancelling the future takes it out of the queue."""
        if self._stopping:
            raise ShuttingDown("the model is being shut down and takes no more requests")
        if deadline is not None and deadline <= self._clock():
            raise DeadlineExceeded("the deadline had passed before the request was queued")
        limit = self._options.max_batch_size
        if not limit or rows <= limit:
            return self._enqueue(self._pending(feed, rows, urgency), deadline)
        if not self._options.split_oversize:
            raise InvalidArgument(f"the request has {rows} rows, the model takes at most {limit} (max_batch_size)")
        most = self._options.most_parts
        size = max(limit, math.ceil(rows / most)) if most else limit
        return self._submit_parts([self._pending(*part, urgency) for part in parts(feed, rows, size)], deadline)

    def pace_at_once(self, values: int) -> Pace | None:
        """Whether a run of so many input values would be made at once, on the event loop: what `run_at_once` asks for.

        None if it would not, because somebody waits or such runs are not quick.
        """
        free = self._idle and not self._stopping and not self._queue and not (self._order and self._unfinished)
        pace = self._paces.of(values) if free and self._may_run_at_once else None
        return pace if pace and pace.is_quick else None

    def run_at_once(self, feed: Feed, pace: Pace) -> AtOnce:
        """Run requests that are joined already; without a future, a queue and an own thread.

        Args:
            feed: Arrays by input name, of `max_batch_size` rows at most if several requests are joined.
            pace: What `pace_at_once` says of them.

        Raises:
            Exception: What the run raised. Nobody is told of it: submit the requests one by one.
        """
        doubts = pace.doubts
        working = time.thread_time() if doubts else 0.0
        started = self._clock()
        outputs = self._runner(feed, None)
        return AtOnce(outputs, pace, self._clock() - started, time.thread_time() - working if doubts else 0.0)

    def note(self, run: AtOnce, rows: int, waits: tuple[float, ...]) -> None:
        """Take in how a run went that was made at once; can wait until its requests are answered.

        Args:
            run: The run.
            rows: The rows of all its requests.
            waits: Seconds that each of them had waited.
        """
        run.pace.record(run.seconds, run.busy, on_loop=True)
        if self._observer:
            self._observer(BatchRecord(rows, waits, run.seconds, failures=0))

    async def drain(self) -> None:
        """Take no more requests, run those that wait without delay, and return when the last run has ended."""
        self._stopping = True
        self.hurry()
        while self._unfinished:
            await asyncio.wait(self._unfinished)

    def hurry(self) -> None:
        """From now on let nobody wait for company, whatever the queue delay."""
        self._hurrying = True
        self._schedule(asyncio.get_running_loop())

    def close(self) -> None:
        """Take no more requests and fail those that wait; runs under way end and answer by themselves."""
        self._stopping = True
        for pending in self._queue.clear():
            settle(pending, ShuttingDown("the model was shut down before the request was run"))
        self._threads.shutdown(wait=False)

    def abandon(self) -> None:
        """End the runs under way between two of their nodes; their requests fail with ShuttingDown."""
        for run, _ in list(self._under_way.values()):
            for pending in run.group:
                settle(pending, ShuttingDown("the model was shut down before the run had ended"))
            run.stop()

    def _pending(self, feed: Feed, rows: int, urgency: Urgency | None) -> Pending:
        options, now = self._options, self._clock()
        level = options.effective_level(urgency.priority) if urgency else options.default_level
        pending = Pending(feed, rows, self._key(feed, rows), now, asyncio.get_running_loop().create_future(), level)
        limits = options.of_level(level)
        if urgency or limits.timeout:
            pending.expires = now + (urgency or Urgency()).patience(limits)
        if options.ragged or options.sized_by:
            pending.length = options.length(feed)
        return pending

    def _key(self, feed: Feed, rows: int) -> Key:
        if not self._options.max_batch_size:
            return ()
        ragged = self._options.ragged
        return batch_key(feed, rows, ragged.inputs if ragged and ragged.joins else None)

    def _enqueue(self, pending: Pending, deadline: float | None) -> asyncio.Future[Feed]:
        self._queue.put(pending)
        if self._order:
            self._order.admit(pending)
        loop = asyncio.get_running_loop()
        # Where waiting for too long does not fail a request, the queue lets it stand back.
        if pending.expires < math.inf and not self._options.of_level(pending.level).delays:
            pending.timer = loop.call_later(pending.expires - pending.enqueued, _expire, pending, pending.expires)
        timer = loop.call_later(deadline - pending.enqueued, _expire, pending, deadline) if deadline else None
        self._unfinished.add(pending.future)
        pending.future.add_done_callback(partial(self._leave, pending, timer))
        self._schedule(loop)
        return pending.future

    def _submit_parts(self, pieces: Sequence[Pending], deadline: float | None) -> asyncio.Future[Feed]:
        for piece in pieces[1:]:
            piece.room = 0
        futures = [self._enqueue(piece, deadline) for piece in pieces]
        joined = asyncio.ensure_future(_joined(futures, [piece.rows for piece in pieces]))
        self._unfinished.add(joined)
        joined.add_done_callback(self._unfinished.discard)
        return joined

    def _schedule(self, loop: asyncio.AbstractEventLoop) -> None:
        """Dispatch in the loop's next turn, when everything that arrived in this one is queued."""
        if not self._scheduled:
            self._scheduled = True
            loop.call_soon(self._dispatch)

    def _dispatch(self) -> None:
        self._scheduled = False
        if self._timer:
            self._timer.cancel()
        if not len(self._queue):
            return
        loop = asyncio.get_running_loop()
        while self._idle:
            group = self._queue.take(self._clock(), hurry=self._hurrying)
            if not group:
                self._sleep(loop)
                break
            run = self._make_run(group)
            pace = self._paces.of(run.values)
            if pace.is_quick:
                self._run_here(run, pace)
                # One run a turn: between two of them the loop serves its sockets.
                self._schedule(loop)
                break
            self._run_on_thread(run, pace, loop)

    def _make_run(self, group: Sequence[Pending]) -> Run:
        run = Run(group, self._runner, self._clock, self._options.ragged)
        for pending in group:
            pending.run = run
            if pending.timer:
                pending.timer.cancel()
        return run

    def _sleep(self, loop: asyncio.AbstractEventLoop) -> None:
        now = self._clock()
        due = self._queue.next_due(now)
        if due < math.inf:
            self._timer = loop.call_later(max(0.0, due - now), self._dispatch)

    def _run_here(self, run: Run, pace: Pace) -> None:
        run.execute(on_loop=True, timed=pace.doubts)
        self._finish(run, pace, on_loop=True)

    def _run_on_thread(self, run: Run, pace: Pace, loop: asyncio.AbstractEventLoop) -> None:
        self._idle -= 1
        done = loop.run_in_executor(self._threads, run.execute)
        self._under_way[done] = run, self._clock()
        self._unfinished.add(done)
        done.add_done_callback(partial(self._return, run, pace))

    def _return(self, run: Run, pace: Pace, done: asyncio.Future[None]) -> None:
        self._unfinished.discard(done)
        del self._under_way[done]
        self._idle += 1
        self._finish(run, pace, on_loop=False)
        self._dispatch()

    def _finish(self, run: Run, pace: Pace, *, on_loop: bool) -> None:
        record = run.record()
        answer = self._order.settle if self._order else settle
        for place, (pending, outcome) in enumerate(zip(run.group, run.outcomes, strict=True)):
            answer(pending, outcome if isinstance(outcome, Exception) else Timed(outcome, record, place))
            pending.run = None  # else both live until the garbage collector finds the circle
        pace.record(record.run_seconds, run.busy, on_loop=on_loop)
        if self._observer:
            self._observer(record)

    def _leave(self, pending: Pending, timer: asyncio.TimerHandle | None, _: asyncio.Future[Feed]) -> None:
        """Clear up after a request that was answered or whose caller went away."""
        self._unfinished.discard(pending.future)
        if pending.run:
            pending.run.leave()
        else:
            self._queue.discard(pending)
        for running in (timer, pending.timer):
            if running:
                running.cancel()
        if self._order:
            self._order.advance()


def _expire(pending: Pending, at: float) -> None:
    settle(pending, DeadlineExceeded(f"there was no answer within {at - pending.enqueued:.3g} s"))


async def _joined(futures: Sequence[asyncio.Future[Feed]], rows: Sequence[int]) -> Feed:
    """The answer to a request that was cut into parts; if one fails, the others need not be run."""
    try:
        return join_parts(await asyncio.gather(*futures), rows)
    finally:
        for future in futures:
            future.cancel()
