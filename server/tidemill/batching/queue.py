"""Where requests wait until they are taken as batches; knows no threads, no event loop and no clock."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from itertools import chain
from typing import TypeAlias

from tidemill.batching.options import BatchingOptions
from tidemill.batching.pending import Key, Pending
from tidemill.batching.policy import FixedPolicy, Plan, Policy, plan
from tidemill.errors import QueueFull

__all__ = ["FAIR_TURN", "Queue"]

FAIR_TURN = 16
"""Every so many batches, one goes to the request that has waited longest, whatever its priority: nobody starves."""

_Rank: TypeAlias = tuple[int, bool]
_Line: TypeAlias = dict[_Rank, dict[Pending, None]]


class Queue:
    """A bounded queue that hands out batches.

    Requests of one key form a line of their own, first come first served within a priority level, so that requests of
    other shapes neither block them nor are blocked. Among the lines that are due, the one goes first whose first
    request is the most urgent, and of equally urgent ones the oldest.
    """

    def __init__(self, options: BatchingOptions, policy: Policy | None = None) -> None:
        """Begin empty.

        Args:
            options: The limits.
            policy: Which requests of a line are joined; by count of rows if not given.
        """
        self._options = options
        self._policy = policy or FixedPolicy(options)
        self._lines: dict[Key, _Line] = {}
        self._sizes: Counter[int] = Counter()
        self._size = 0
        self._turn = 0
        self._delaying = [n for n in range(1, options.priority_levels + 1) if options.of_level(n).delays]

    def __len__(self) -> int:
        return self._size

    def put(self, pending: Pending) -> None:
        """Append a request to its line.

        Raises:
            QueueFull: `max_queue_size` requests of its level wait already.
        """
        waiting, limit = self._sizes[pending.level], self._options.of_level(pending.level).max_queue_size
        if limit and waiting + pending.room > limit:
            level = f" of priority {pending.level}" if self._options.priority_levels > 1 else ""
            raise QueueFull(f"the model's queue is full: {waiting} requests{level} wait (max_queue_size {limit})")
        self._insert(pending)
        self._sizes[pending.level] += pending.room
        self._size += 1

    def discard(self, pending: Pending) -> None:
        """Remove a request wherever it stands; nothing happens if it is no longer here."""
        if pending in self._lines.get(pending.key, {}).get(pending.rank, ()):
            self._remove([pending])

    def take(self, now: float, *, hurry: bool = False) -> list[Pending]:
        """Remove and return the next batch, empty if none is due.

        Args:
            now: The time, in the clock of `Pending.enqueued`.
            hurry: Wait for nothing, whatever the queue delay.
        """
        latest = math.inf if hurry else now
        batch = next((batch for batch, due in self._plans(now) if batch and due <= latest), [])
        if batch:
            self._turn += 1
            self._remove(batch)
        return batch

    def next_due(self, now: float) -> float:
        """When `take` will have a batch: minus infinity if it has one already, infinity if nothing waits."""
        return min((due for _, due in self._plans(now)), default=math.inf)

    def clear(self) -> list[Pending]:
        """Remove and return everything."""
        waiting = [pending for line in self._lines.values() for rank in line.values() for pending in rank]
        self._lines.clear()
        self._sizes.clear()
        self._size = 0
        return waiting

    def _plans(self, now: float) -> Iterator[Plan]:
        """What each line would send, the most urgent line first."""
        self._delay_expired(now)
        fair = self._turn % FAIR_TURN == FAIR_TURN - 1
        heads = []
        for line in self._lines.values():
            waiting = _in_order(line, now, fair)
            if head := next(waiting, None):
                heads.append((head, waiting))
        for head, waiting in sorted(heads, key=lambda entry: _urgency(entry[0], fair)):
            yield plan(chain([head], waiting), now, self._options, self._policy)

    def _delay_expired(self, now: float) -> None:
        """Let those stand back that have waited for too long, where that does not fail them."""
        for level in self._delaying:
            for line in list(self._lines.values()):
                for pending in [late for late in line.get((level, False), ()) if late.expires <= now]:
                    self._erase(pending)
                    pending.delayed, pending.expires = True, math.inf
                    self._insert(pending)

    def _insert(self, pending: Pending) -> None:
        line = self._lines.get(pending.key)
        if line is None:
            line = self._lines[pending.key] = {}
        waiting = line.get(pending.rank)
        if waiting is None:
            waiting = line[pending.rank] = {}
        waiting[pending] = None

    def _erase(self, pending: Pending) -> None:
        line = self._lines[pending.key]
        del line[pending.rank][pending]
        if not line[pending.rank]:
            del line[pending.rank]
        if not line:
            del self._lines[pending.key]

    def _remove(self, batch: list[Pending]) -> None:
        for pending in batch:
            self._erase(pending)
            self._sizes[pending.level] -= pending.room
        self._size -= len(batch)


def _in_order(line: _Line, now: float, fair: bool) -> Iterator[Pending]:
    """Those of a line who still wait, the most urgent first; in a fair turn the oldest first."""
    everyone: Iterator[Pending] = chain.from_iterable(line[rank] for rank in sorted(line))
    if fair and len(line) > 1:
        everyone = iter(sorted(everyone, key=lambda pending: pending.enqueued))
    return (pending for pending in everyone if not pending.abandoned and pending.expires > now)


def _urgency(pending: Pending, fair: bool) -> tuple[tuple[int, bool], float]:
    return (0, False) if fair else pending.rank, pending.enqueued
