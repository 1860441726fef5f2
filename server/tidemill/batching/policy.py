"""Which requests of a line form the next batch and when it is due; pure functions without a queue or a clock."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

from tidemill.batching.options import BatchingOptions
from tidemill.batching.pending import Pending

__all__ = ["Plan", "plan"]


class Plan(NamedTuple):
    """The next batch of a line.

    Attributes:
        batch: The requests, oldest first; empty if nobody waits.
        due: The time from which it may be sent: minus infinity for at once.
    """

    batch: list[Pending]
    due: float


def plan(waiting: Iterable[Pending], now: float, options: BatchingOptions) -> Plan:
    """Choose from the head of a line.

    A batch is due at once when it is full or has a preferred size, else when its oldest request has waited for the
    queue delay. A batch of a preferred size leaves the rest behind, unless its oldest request is over the delay.

    Args:
        waiting: Requests that can be joined, oldest first.
        now: The time in the clock of `Pending.enqueued`.
        options: The limits.
    """
    batch, best, full = _gather(waiting, options)
    if not batch:
        return Plan([], math.inf)
    matures = batch[0].enqueued + options.max_queue_delay
    if best and (now < matures or not options.max_queue_delay):
        return Plan(batch[:best], -math.inf)
    return Plan(batch, -math.inf if full or not options.max_queue_delay else matures)


def _gather(waiting: Iterable[Pending], options: BatchingOptions) -> tuple[list[Pending], int, bool]:
    """The requests that fit, how many of them make the largest preferred size, and whether no more could join."""
    limit, preferred = options.max_batch_size, options.preferred_batch_sizes
    target = max(preferred, default=limit)
    batch: list[Pending] = []
    rows = best = 0
    for pending in waiting:
        if batch and rows + pending.weight > limit:
            return batch, best, True
        batch.append(pending)
        rows += pending.weight
        if rows in preferred:
            best = len(batch)
        if rows >= target:
            return batch, best, True
    return batch, best, False
