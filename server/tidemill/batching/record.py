"""What is told of a batch after its run; knows nothing of who counts it."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

__all__ = ["BatchRecord", "Observer"]


class BatchRecord(NamedTuple):
    """One batch.

    Attributes:
        rows: Rows of the batch.
        queue_seconds: How long each of its requests had waited.
        run_seconds: The time in the model, re-runs of a failed batch included.
        failures: How many of its requests failed.
        broken: How many of those failed through no fault of theirs.
        fault: What the last of these was told.
        input_seconds: The time that joining took.
        output_seconds: The time that splitting took.
        executions: How often the model was run: once, unless the batch failed.
        length: The size of the axis along which requests were padded; 0 if they are not.
        padding: The share of what was run that is padding, 0 to 1.
        started: When joining began, in the batcher's clock, in seconds.
    """

    rows: int
    queue_seconds: tuple[float, ...]
    run_seconds: float
    failures: int
    broken: int = 0
    fault: str = ""
    input_seconds: float = 0.0
    output_seconds: float = 0.0
    executions: int = 1
    length: int = 0
    padding: float = 0.0
    started: float = 0.0

    @property
    def requests(self) -> int:
        """How many requests the batch joined."""
        return len(self.queue_seconds)

    @property
    def seconds(self) -> float:
        """From the start of joining to the end of splitting."""
        return self.input_seconds + self.run_seconds + self.output_seconds


Observer: TypeAlias = Callable[[BatchRecord], None]
