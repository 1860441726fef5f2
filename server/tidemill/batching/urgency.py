"""What a single request asks of the queue; knows no queue."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tidemill.batching.options import LevelOptions

__all__ = ["Urgency"]


@dataclass(frozen=True, slots=True)
class Urgency:
    """A request's priority and patience.

    Attributes:
        priority: Its level, 1 for the most urgent; 0 for the model's default.
        timeout: Seconds that it is willing to wait for its run; 0 for as long as the model says.
    """

    priority: int = 0
    timeout: float = 0.0

    def patience(self, level: LevelOptions) -> float:
        """Seconds that it may wait; a request can ask for less than its level allows, never for more."""
        own = self.timeout if level.overridable else 0.0
        return min(own or math.inf, level.timeout or math.inf)
