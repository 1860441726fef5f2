"""One batch on its way through the runner; the part of the batcher's work that may happen on another thread."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from tidemill.batching.isolation import Outcome, Runner, run_group
from tidemill.batching.pending import Pending
from tidemill.batching.record import BatchRecord
from tidemill.errors import InferenceFailed, TidemillError

__all__ = ["Clock", "Run", "settle"]

Clock: TypeAlias = Callable[[], float]


class Run:
    """A batch, and after `execute` its answers."""

    def __init__(self, group: Sequence[Pending]) -> None:
        self._group = group
        self._started = self._ended = 0.0
        self._outcomes: list[Outcome] = [InferenceFailed("the run was aborted") for _ in group]

    def execute(self, runner: Runner, clock: Clock) -> None:
        """Run the batch; on any thread."""
        self._started = clock()
        self._outcomes = run_group(runner, self._group)
        self._ended = clock()

    def answer(self) -> BatchRecord:
        """Hand every request its outcome, on the event loop, and tell how it went."""
        for pending, outcome in zip(self._group, self._outcomes, strict=True):
            settle(pending, outcome)
        return BatchRecord(
            rows=sum(pending.rows for pending in self._group),
            queue_seconds=tuple(self._started - pending.enqueued for pending in self._group),
            run_seconds=self._ended - self._started,
            failures=sum(isinstance(outcome, TidemillError) for outcome in self._outcomes),
        )


def settle(pending: Pending, outcome: Outcome) -> None:
    """Answer a request, unless its caller is gone or was answered."""
    if pending.abandoned:
        return
    if isinstance(outcome, TidemillError):
        pending.future.set_exception(outcome)
    else:
        pending.future.set_result(outcome)
