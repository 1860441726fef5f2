"""Joins requests only where the group finishes sooner than its parts; knows run times as a table, not a model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from operator import attrgetter

from tidemill.batching.cost import CostTable
from tidemill.batching.options import BatchingOptions
from tidemill.batching.pending import Pending
from tidemill.batching.policy import Choice

__all__ = ["CAUTION", "OVERHEAD", "CostPolicy"]

OVERHEAD = 50e-6
"""Seconds that a run costs beside the model: a hop to a thread and back, joining and answering."""
CAUTION = 1.05
"""By how much joining must be better, as measurements are not that exact."""
_WINDOW = 64
"""How many of the waiting are looked at; planning takes time in proportion to this and to the batch size."""
_CURIOUS_TURN = 64
"""Every so many batches, one is twice as large as it should be: else a table that was measured on a busy machine, and
speaks against batches, would never be corrected."""


class CostPolicy:
    """Divides those who wait into groups of like length so that all are answered in the least time.

    The group that the first of the line is in goes first, so nobody is passed over for ever.
    """

    def __init__(self, table: CostTable, options: BatchingOptions) -> None:
        """Set the limits.

        Args:
            table: Run times over rows and length.
            options: Of which the largest batch size counts.
        """
        self._table = table
        self._limit = options.max_batch_size
        self._even: dict[int, list[int]] = {}
        self._revision = table.revision
        self._turn = 0

    def choose(self, waiting: Iterator[Pending]) -> Choice:
        """The first request and those that it should be run with."""
        window = self._window(waiting)
        if len(window) == 1:
            return Choice(window, window[0].weight >= self._limit)
        lengths = {pending.length for pending in window}
        batch = self._prefix(window) if len(lengths) == 1 else self._group_of_first(window)
        self._turn += 1
        if self._turn % _CURIOUS_TURN == 0:
            batch = self._doubled(batch, window)
        return Choice(batch, len(batch) < len(window) or sum(map(_weight, batch)) >= self._limit)

    def _window(self, waiting: Iterator[Pending]) -> list[Pending]:
        """As many as could matter to what is chosen: a batch, and as much again to choose from."""
        window: list[Pending] = []
        rows = 0
        for pending in islice(waiting, _WINDOW):
            window.append(pending)
            rows += pending.weight
            if rows >= 2 * self._limit:
                break
        return window

    def _prefix(self, window: Sequence[Pending]) -> list[Pending]:
        """Of requests of one length: the first ones, up to the best number of rows."""
        total = min(sum(map(_weight, window)), 2 * self._limit)
        best = self._best_rows(window[0].length)[total]
        batch = [window[0]]
        rows = window[0].weight
        for pending in window[1:]:
            rows += pending.weight
            if rows > best:
                break
            batch.append(pending)
        return batch

    def _doubled(self, batch: list[Pending], window: Sequence[Pending]) -> list[Pending]:
        """A batch with as many rows again of requests that are of nearly its length."""
        rows, longest = sum(map(_weight, batch)), max(pending.length for pending in batch)
        left = min(2 * rows, self._limit) - rows
        joined = [*batch]
        for pending in sorted(window, key=lambda pending: abs(pending.length - longest)):
            if pending not in batch and pending.weight <= left:
                joined.append(pending)
                left -= pending.weight
        return joined

    def _best_rows(self, length: int) -> list[int]:
        """By how many rows wait: how many of them to run first so that all are done soonest."""
        if self._revision != self._table.revision:
            self._revision = self._table.revision
            self._even.clear()
        if length not in self._even:
            self._even[length] = _best_first(self._table.column(length, self._limit), 2 * self._limit)
        return self._even[length]

    def _group_of_first(self, window: Sequence[Pending]) -> list[Pending]:
        ordered = sorted(window, key=attrgetter("length"))
        start_of = self._divide(ordered)
        place, end = ordered.index(window[0]), len(ordered)
        while start_of[end] > place:
            end = start_of[end]
        return ordered[start_of[end] : end]

    def _divide(self, ordered: Sequence[Pending]) -> list[int]:
        """Where the last group of the first n requests begins, by n, if they are divided in the best way."""
        least, start_of = [0.0], [0]
        for end in range(1, len(ordered) + 1):
            column = self._table.column(ordered[end - 1].length, self._limit)
            rows, best, start = 0, float("inf"), end - 1
            for begin in range(end - 1, -1, -1):
                rows += ordered[begin].weight
                if rows > self._limit and begin < end - 1:
                    break
                caution = 1.0 if begin == end - 1 else CAUTION
                seconds = least[begin] + column[min(rows, self._limit)] * caution + OVERHEAD
                if seconds <= best:
                    best, start = seconds, begin
            least.append(best)
            start_of.append(start)
        return start_of


def _weight(pending: Pending) -> int:
    return pending.weight


def _best_first(column: Sequence[float], most: int) -> list[int]:
    least, first = [0.0], [0]
    for total in range(1, most + 1):
        choices = range(1, min(total, len(column) - 1) + 1)
        seconds = {rows: least[total - rows] + column[rows] * (CAUTION if rows > 1 else 1.0) for rows in choices}
        best = min(choices, key=lambda rows: (seconds[rows], -rows))
        least.append(seconds[best] + OVERHEAD)
        first.append(best)
    return first
