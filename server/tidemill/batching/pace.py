"""How long a model's runs take, as remembered from the latest ones; knows neither the runs nor the clock."""

from __future__ import annotations

import math

__all__ = ["Pace"]

_MEMORY = 0.9
"""What a slow run still counts after each quicker one: one slow shape keeps runs off the loop for a while."""


class Pace:
    """A pessimistic estimate: it follows slow runs at once and quick ones slowly."""

    def __init__(self) -> None:
        self._estimate = math.inf

    def record(self, seconds: float) -> None:
        """Take in how long a run took."""
        remembered = 0.0 if math.isinf(self._estimate) else self._estimate * _MEMORY
        self._estimate = max(seconds, remembered)

    def is_below(self, seconds: float) -> bool:
        """Whether the next run may be expected to take less; before the first record only than infinity."""
        return self._estimate < seconds or math.isinf(seconds)
