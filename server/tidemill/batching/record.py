"""What is told of a batch after its run; knows nothing of who counts it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

__all__ = ["BatchRecord", "Observer"]


@dataclass(frozen=True, slots=True)
class BatchRecord:
    """One batch.

    Attributes:
        rows: Rows of the batch.
        queue_seconds: How long each of its requests had waited.
        run_seconds: From the start of the run to its end, re-runs of a failed batch included.
        failures: How many of its requests failed.
    """

    rows: int
    queue_seconds: tuple[float, ...]
    run_seconds: float
    failures: int

    @property
    def requests(self) -> int:
        """How many requests the batch joined."""
        return len(self.queue_seconds)


Observer: TypeAlias = Callable[[BatchRecord], None]
