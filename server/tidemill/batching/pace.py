"""Whether a model's runs are quick enough to be made on the event loop; knows neither the runs nor the clock."""

from __future__ import annotations

import math

__all__ = ["Pace"]

_MEMORY = 0.9
"""What a slow run still counts after each quicker one: one slow shape keeps runs off the loop for a while."""
_PENALTY, _LONGEST_PENALTY = 16, 4096
"""Runs that are made elsewhere after one that held the loop for too long, at first and at most."""


class Pace:
    """A pessimistic estimate: it follows slow runs at once and quick ones slowly.

    On a thread the clock also counts the wait for the interpreter, which under load is longer than any quick run; so a
    run there is judged by the processor time that it took. A run may also wait for something else, such as an
    accelerator: that shows when it is made on the loop, and each time it does, it is tried again less soon.
    """

    def __init__(self, limit: float) -> None:
        """Know nothing yet.

        Args:
            limit: Seconds that a run may hold the loop; 0 for never, infinity for as long as it takes.
        """
        self._limit = limit
        self._estimate = math.inf
        self._penalty = _PENALTY
        self._away = 0

    @property
    def is_quick(self) -> bool:
        """Whether the next run may be expected to stay below the limit; before the first record only if there is none."""
        return math.isinf(self._limit) or (not self._away and self._estimate < self._limit)

    def record(self, seconds: float, busy: float, *, on_loop: bool) -> None:
        """Take in a run.

        Args:
            seconds: How long it took.
            busy: The processor time that it took on its thread.
            on_loop: Whether it was made on the loop.
        """
        remembered = 0.0 if math.isinf(self._estimate) else self._estimate * _MEMORY
        self._estimate = max(seconds if on_loop else min(seconds, busy), remembered)
        if not on_loop:
            self._away = max(0, self._away - 1)
        elif seconds < self._limit:
            self._penalty = max(_PENALTY, self._penalty // 2)
        else:
            self._away, self._penalty = self._penalty, min(2 * self._penalty, _LONGEST_PENALTY)
