"""One batch on its way through the runner; the part of the batcher's work that may happen on another thread."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TypeAlias

from tidemill.batching.batch import join, split
from tidemill.batching.cancel import Cancel
from tidemill.batching.isolation import Outcome, run_group
from tidemill.batching.pending import Feed, Pending
from tidemill.batching.ragged import Ragged
from tidemill.batching.record import BatchRecord
from tidemill.errors import InferenceFailed, InvalidArgument, TidemillError

__all__ = ["Clock", "Run", "Runner"]

Clock: TypeAlias = Callable[[], float]
Runner: TypeAlias = Callable[[Feed, Cancel | None], Feed]
"""Runs the model on arrays by input name; it may attach to the Cancel, if there is one, what ends the run early."""


class Run:
    """A batch, and after `execute` its answers.

    Attributes:
        group: The requests.
        outcomes: The answer of each.
        busy: Seconds of processor time that the model took on the thread that ran it.
    """

    def __init__(self, group: Sequence[Pending], runner: Runner, clock: Clock, ragged: Ragged | None = None) -> None:
        self.group = group
        self.outcomes: list[Outcome] = [InferenceFailed("the run was aborted") for _ in group]
        self._runner = runner
        self._clock = clock
        self._ragged = ragged
        self._cancel = Cancel()
        self._given: Cancel | None = None
        self._timed = True
        self._staying = len(group)
        self._started = self._joining = self._running = self._splitting = 0.0
        self._executions = 0
        self.busy = 0.0

    def execute(self, *, on_loop: bool = False, timed: bool = True) -> None:
        """Run the batch.

        Args:
            on_loop: Whether this is the thread of the event loop, where nobody could cancel the run meanwhile.
            timed: Whether to find out `busy`.
        """
        self._started = self._clock()
        self._given = None if on_loop else self._cancel
        self._timed = timed
        self.outcomes = run_group(self._run_batch, self.group)

    @property
    def values(self) -> int:
        """How many values its inputs hold."""
        return sum([array.size for pending in self.group for array in pending.feed.values()])

    def leave(self) -> None:
        """Note that the caller of one request is gone or answered; when all are gone the run ends early."""
        self._staying -= 1
        if not self._staying:
            self.stop()

    def stop(self) -> None:
        """End the run early, whoever waits for it."""
        self._cancel.set()

    def record(self) -> BatchRecord:
        """How it went."""
        failed = [outcome for outcome in self.outcomes if isinstance(outcome, TidemillError)]
        broken = [] if self._cancel.cancelled else [fault for fault in failed if not isinstance(fault, InvalidArgument)]
        length = max(pending.length for pending in self.group)
        return BatchRecord(
            rows=sum(pending.rows for pending in self.group),
            queue_seconds=tuple(self._started - pending.enqueued for pending in self.group),
            run_seconds=self._running,
            failures=len(failed),
            broken=len(broken),
            fault=str(broken[-1]) if broken else "",
            input_seconds=self._joining,
            output_seconds=self._splitting,
            executions=self._executions,
            length=length,
            padding=_padding(self.group, length),
            started=self._started,
        )

    def _run_batch(self, group: Sequence[Pending]) -> list[Feed]:
        """Join, run, split. A lone request gets the outputs as they are, even if they could not be split."""
        feeds, rows = [pending.feed for pending in group], [pending.rows for pending in group]
        begun = self._clock()
        feed = self._ragged.join(feeds, rows) if self._ragged else join(feeds)
        joined = self._clock()
        self._joining += joined - begun
        self._executions += 1
        working = time.thread_time() if self._timed else 0.0
        try:
            outputs = self._runner(feed, self._given)
        finally:
            self.busy += time.thread_time() - working if self._timed else 0.0
            ran = self._clock()
            self._running += ran - joined
        answers = [outputs] if len(group) == 1 else split(outputs, rows)
        if self._ragged:
            answers = self._ragged.cut(answers, feeds)
        self._splitting += self._clock() - ran
        return answers


def _padding(group: Sequence[Pending], length: int) -> float:
    total = length * sum(pending.rows for pending in group)
    return 1 - sum(pending.length * pending.rows for pending in group) / total if total else 0.0
