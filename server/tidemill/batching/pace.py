"""Whether a model's runs are quick enough to be made on the event loop; knows neither the runs nor the clock."""

from __future__ import annotations

import math

__all__ = ["Pace", "Paces"]

_MEMORY = 0.5
"""What a slow run still counts after each quicker one of its size."""
_STRIKES = 3
"""Runs in a row that must hold the loop for too long until runs are made elsewhere: one may just be a busy machine."""
_PENALTY, _LONGEST_PENALTY = 4, 4096
"""Runs that are made elsewhere then, at first and at most."""


class Pace:
    """A pessimistic estimate: it follows slow runs at once and quick ones slowly.

    Attributes:
        is_quick: Whether the next run may be expected to stay below the limit; at first only if there is none.

    The clock also counts waiting for the interpreter and for the processor, which on a busy machine is longer than any
    quick run; so runs are judged by the processor time that they took. A run may also wait for something else, such as
    an accelerator: that shows when it is made on the loop, and each time it does, it is tried again less soon.
    """

    def __init__(self, limit: float) -> None:
        """Know nothing yet.

        Args:
            limit: Seconds that a run may hold the loop; 0 for never, infinity for as long as it takes.
        """
        self._limit = limit
        self._estimate = math.inf
        self._strikes = 0
        self._penalty = _PENALTY
        self._away = 0
        self.is_quick = math.isinf(limit)

    @property
    def doubts(self) -> bool:
        """Whether the last run on the loop held it for too long, so that the processor time of the next one matters.

        To ask for that may take longer than a quick run; 0 is told of those that nobody asked for.
        """
        return self._strikes > 0

    def record(self, seconds: float, busy: float, *, on_loop: bool) -> None:
        """Take in a run.

        Args:
            seconds: How long it took.
            busy: The processor time that it took on its thread.
            on_loop: Whether it was made on the loop.
        """
        remembered = 0.0 if math.isinf(self._estimate) else self._estimate * _MEMORY
        self._estimate = max(min(seconds, busy), remembered)
        if not on_loop:
            self._away = max(0, self._away - 1)
        elif seconds < self._limit:
            self._strikes, self._penalty = 0, max(_PENALTY, self._penalty // 2)
        else:
            self._strike()
        self.is_quick = math.isinf(self._limit) or (not self._away and self._estimate < self._limit)

    def _strike(self) -> None:
        self._strikes += 1
        if self._strikes == _STRIKES:
            self._strikes, self._away = 0, self._penalty
            self._penalty = min(2 * self._penalty, _LONGEST_PENALTY)


class Paces:
    """One estimate for each size of run, so that large runs say nothing of small ones, nor the other way round."""

    def __init__(self, limit: float) -> None:
        """Know nothing yet; see `Pace`."""
        self._limit = limit
        self._by_size: dict[int, Pace] = {}

    def of(self, values: int) -> Pace:
        """The estimate for runs of about so many input values; sizes count as equal up to a factor of two."""
        size = values.bit_length()
        pace = self._by_size.get(size)
        if pace is None:
            pace = self._by_size[size] = Pace(self._limit)
        return pace
