"""Where requests wait until they are taken as batches; knows no threads, no event loop and no clock."""

from __future__ import annotations

import math
from collections.abc import Iterator

from tidemill.batching.options import BatchingOptions
from tidemill.batching.pending import Key, Pending
from tidemill.batching.policy import Plan, plan
from tidemill.errors import QueueFull

__all__ = ["Queue"]


class Queue:
    """A bounded queue that hands out batches.

    Requests of one key form a line of their own, first come first served, so that requests of other shapes neither
    block them nor are blocked. Among the lines that are due, the one with the oldest request goes first.
    """

    def __init__(self, options: BatchingOptions) -> None:
        self._options = options
        self._lines: dict[Key, dict[Pending, None]] = {}
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def put(self, pending: Pending) -> None:
        """Append a request to its line.

        Raises:
            QueueFull: `max_queue_size` requests wait already.
        """
        limit = self._options.max_queue_size
        if limit and self._size >= limit:
            raise QueueFull(f"the model's queue is full: {self._size} requests wait (max_queue_size {limit})")
        self._lines.setdefault(pending.key, {})[pending] = None
        self._size += 1

    def discard(self, pending: Pending) -> None:
        """Remove a request wherever it stands; nothing happens if it is no longer here."""
        if pending in self._lines.get(pending.key, ()):
            self._remove([pending])

    def take(self, now: float, *, hurry: bool = False) -> list[Pending]:
        """Remove and return the next batch, empty if none is due.

        Args:
            now: The time, in the clock of `Pending.enqueued`.
            hurry: Wait for nothing, whatever the queue delay.
        """
        latest = math.inf if hurry else now
        due = [batch for batch, at in self._plans(now) if batch and at <= latest]
        batch = min(due, key=lambda batch: batch[0].enqueued, default=[])
        if batch:
            self._remove(batch)
        return batch

    def next_due(self, now: float) -> float:
        """When `take` will have a batch: minus infinity if it has one already, infinity if nothing waits."""
        return min((at for _, at in self._plans(now)), default=math.inf)

    def clear(self) -> list[Pending]:
        """Remove and return everything."""
        waiting = [pending for line in self._lines.values() for pending in line]
        self._lines.clear()
        self._size = 0
        return waiting

    def _plans(self, now: float) -> Iterator[Plan]:
        for line in self._lines.values():
            yield plan((pending for pending in line if not pending.abandoned), now, self._options)

    def _remove(self, batch: list[Pending]) -> None:
        line = self._lines[batch[0].key]
        for pending in batch:
            del line[pending]
        if not line:
            del self._lines[batch[0].key]
        self._size -= len(batch)
