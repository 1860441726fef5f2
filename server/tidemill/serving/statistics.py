"""The running sums of one model, as the statistics extension tells them; knows neither Prometheus nor a wire."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tidemill.batching.record import BatchRecord

__all__ = ["REASONS", "Duration", "Tally"]

_REASON_OF_CODE = {
    "unavailable": "REJECTED",
    "deadline_exceeded": "REJECTED",
    "cancelled": "CANCELED",
    "inference_failed": "BACKEND",
    "unprocessable": "BACKEND",
}
REASONS = (*dict.fromkeys(_REASON_OF_CODE.values()), "OTHER")


@dataclass(slots=True)
class Duration:
    """How often something took time, and how much in all."""

    count: int = 0
    seconds: float = 0.0

    def add(self, seconds: float, count: int = 1) -> None:
        """Count one or several, `seconds` being the time of all of them."""
        self.count += count
        self.seconds += seconds

    @property
    def microseconds(self) -> int:
        """The whole time."""
        return round(self.seconds * 1e6)

    def to_document(self) -> dict[str, int]:
        """As a StatisticDuration."""
        return {"count": self.count, "ns": round(self.seconds * 1e9)}


@dataclass(slots=True)
class Tally:
    """What one version of a model has done since the server started; it outlives a reload.

    Every request of a batch is charged the whole run, as in Triton, so that averages tell what a caller sees.

    Attributes:
        success: Answered requests, from first byte to answer.
        fail: Refused and failed requests, likewise.
        failures: How many failed, by reason.
        queue: Waiting for a run, per request that was run.
        infer: The run that a request took part in, per request that was run.
        runs: The runs by their number of rows.
        rows: Rows that were run.
        last_inference: When a request was last answered, in milliseconds since 1970; 0 for never.
    """

    success: Duration = field(default_factory=Duration)
    fail: Duration = field(default_factory=Duration)
    failures: Counter[str] = field(default_factory=Counter)
    queue: Duration = field(default_factory=Duration)
    infer: Duration = field(default_factory=Duration)
    runs: dict[int, Duration] = field(default_factory=dict)
    rows: int = 0
    last_inference: int = 0
    wall_clock: Callable[[], float] = time.time

    @property
    def executions(self) -> int:
        """How often the model was run."""
        return sum(duration.count for duration in self.runs.values())

    def executed(self, batch: BatchRecord) -> None:
        """Add one run."""
        self.rows += batch.rows
        self.queue.add(sum(batch.queue_seconds), batch.requests)
        self.infer.add(batch.run_seconds * batch.requests, batch.requests)
        self.runs.setdefault(batch.rows, Duration()).add(batch.run_seconds)

    def answered(self, code: str, seconds: float) -> None:
        """Add one answer: "ok" or an error's code."""
        if code == "ok":
            self.success.add(seconds)
            self.last_inference = round(self.wall_clock() * 1e3)
        else:
            self.fail.add(seconds)
            self.failures[_REASON_OF_CODE.get(code, "OTHER")] += 1

    def to_document(self, name: str, version: str) -> dict[str, Any]:
        """As a ModelStatistics; joining and splitting batches is not timed apart from queue and run."""
        untimed = Duration(self.infer.count).to_document()
        none = Duration().to_document()
        return {
            "name": name,
            "version": version,
            "last_inference": self.last_inference,
            "inference_count": self.rows,
            "execution_count": self.executions,
            "inference_stats": {
                "success": self.success.to_document(),
                "fail": self.fail.to_document(),
                "queue": self.queue.to_document(),
                "compute_input": untimed,
                "compute_infer": self.infer.to_document(),
                "compute_output": untimed,
                "cache_hit": none,
                "cache_miss": none,
            },
            "response_stats": {},
            "batch_stats": [_run_document(rows, run) for rows, run in sorted(self.runs.items())],
            "memory_usage": [],
        }


def _run_document(rows: int, run: Duration) -> dict[str, Any]:
    untimed = Duration(run.count).to_document()
    return {"batch_size": rows, "compute_input": untimed, "compute_infer": run.to_document(), "compute_output": untimed}
