"""Which requests of a line form the next batch and when it is due; pure functions without a queue or a clock."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol

from tidemill.batching.options import BatchingOptions
from tidemill.batching.pending import Pending

__all__ = ["Choice", "FixedPolicy", "Plan", "Policy", "buckets", "little_padding", "plan"]


class Plan(NamedTuple):
    """The next batch of a line.

    Attributes:
        batch: The requests; empty if nobody waits.
        due: The time from which it may be sent: minus infinity for at once.
    """

    batch: list[Pending]
    due: float


class Choice(NamedTuple):
    """Requests to run together.

    Attributes:
        batch: The requests, among them the first of the line.
        full: Whether there is nothing to wait for, as no more could join them.
        preferred: How many of them make a preferred size; 0 if none do.
    """

    batch: list[Pending]
    full: bool
    preferred: int = 0


class Policy(Protocol):
    """Which requests are joined."""

    def choose(self, waiting: Iterator[Pending]) -> Choice:
        """Choose from a line of requests that could be joined, the first of which must be among them."""


def plan(waiting: Iterator[Pending], now: float, options: BatchingOptions, policy: Policy) -> Plan:
    """Choose from the head of a line.

    A batch is due at once when it is full or has a preferred size, else when its oldest request has waited for the
    queue delay. A batch of a preferred size leaves the rest behind, unless its oldest request is over the delay.

    Args:
        waiting: Requests that can be joined, at least one, the most urgent first.
        now: The time in the clock of `Pending.enqueued`.
        options: The limits.
        policy: Who is joined.
    """
    batch, full, preferred = policy.choose(waiting)
    delay = options.max_queue_delay
    matures = min(pending.enqueued for pending in batch) + delay if delay else -math.inf
    if preferred and (now < matures or not delay):
        return Plan(batch[:preferred], -math.inf)
    return Plan(batch, -math.inf if full else matures)


_Mates = Callable[[list[Pending], Pending], bool]


class FixedPolicy:
    """Joins what waits, in order, up to a number of rows."""

    def __init__(self, options: BatchingOptions, mates: _Mates = lambda _, __: True) -> None:
        """Set the limits.

        Args:
            options: Of which the largest and the preferred batch sizes count.
            mates: Whether a request may join those chosen before; one that may not is passed over, and blocks nobody.
        """
        self._limit = options.max_batch_size
        self._preferred = frozenset(options.preferred_batch_sizes)
        self._target = max(self._preferred, default=self._limit)
        self._mates = mates

    def choose(self, waiting: Iterator[Pending]) -> Choice:
        """The requests that fit, until no more could join."""
        batch: list[Pending] = []
        rows = best = 0
        for pending in waiting:
            if batch and not self._mates(batch, pending):
                continue
            if batch and rows + pending.weight > self._limit:
                return Choice(batch, True, best)
            batch.append(pending)
            rows += pending.weight
            if rows in self._preferred:
                best = len(batch)
            if rows >= self._target:
                return Choice(batch, True, best)
        return Choice(batch, False, best)


def buckets(edges: tuple[int, ...]) -> _Mates:
    """Those are joined whose lengths lie between the same two edges."""

    def bucket(pending: Pending) -> int:
        return sum(pending.length > edge for edge in edges)

    return lambda batch, pending: bucket(batch[0]) == bucket(pending)


def little_padding(share: float) -> _Mates:
    """Those are joined of whose batch at most a share would be padding."""

    def mates(batch: list[Pending], pending: Pending) -> bool:
        joined = [*batch, pending]
        longest = max(one.length for one in joined)
        values = sum(one.weight * one.length for one in joined)
        return values >= (1 - share) * longest * sum(one.weight for one in joined)

    return mates
