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
class BatchDurations:
    """The times of all batches of one size, each counted once."""

    join: Duration = field(default_factory=Duration)
    infer: Duration = field(default_factory=Duration)
    split: Duration = field(default_factory=Duration)

    def add(self, batch: BatchRecord) -> None:
        """Count one batch."""
        self.join.add(batch.input_seconds)
        self.infer.add(batch.run_seconds)
        self.split.add(batch.output_seconds)

    def to_document(self, rows: int) -> dict[str, Any]:
        """As an InferBatchStatistics."""
        return {
            "batch_size": rows,
            "compute_input": self.join.to_document(),
            "compute_infer": self.infer.to_document(),
            "compute_output": self.split.to_document(),
        }


@dataclass(slots=True)
class Tally:
    """What one version of a model has done since the server started; it outlives a reload.

    Every request of a batch is charged the whole run, as in Triton, so that averages tell what a caller sees.

    Attributes:
        success: Answered requests, from first byte to answer.
        fail: Refused and failed requests, likewise.
        failures: How many failed, by reason.
        queue: Waiting for a run, per request that was run.
        join: Joining the batch that a request was part of, per request that was run.
        infer: Running it, likewise.
        split: Splitting its results, likewise.
        batches: The batches by their number of rows.
        cache_hit: Requests whose answer was kept: the time to find it.
        cache_miss: Requests whose answer was not: the time to look and to keep it.
        executions: How often the model was run; more often than there are batches if some failed.
        rows: Rows that were run.
        answered_at: When a request was last answered, in seconds since 1970; 0 for never.
    """

    success: Duration = field(default_factory=Duration)
    fail: Duration = field(default_factory=Duration)
    failures: Counter[str] = field(default_factory=Counter)
    queue: Duration = field(default_factory=Duration)
    join: Duration = field(default_factory=Duration)
    infer: Duration = field(default_factory=Duration)
    split: Duration = field(default_factory=Duration)
    cache_hit: Duration = field(default_factory=Duration)
    cache_miss: Duration = field(default_factory=Duration)
    batches: dict[int, BatchDurations] = field(default_factory=dict)
    executions: int = 0
    rows: int = 0
    answered_at: float = 0.0
    wall_clock: Callable[[], float] = time.time

    def executed(self, batch: BatchRecord) -> None:
        """Add one batch."""
        requests = len(batch.queue_seconds)
        self.rows += batch.rows
        self.executions += batch.executions
        self.queue.add(sum(batch.queue_seconds), requests)
        self.join.add(batch.input_seconds * requests, requests)
        self.infer.add(batch.run_seconds * requests, requests)
        self.split.add(batch.output_seconds * requests, requests)
        durations = self.batches.get(batch.rows)
        if durations is None:
            durations = self.batches[batch.rows] = BatchDurations()
        durations.add(batch)

    def answered(self, code: str, seconds: float, count: int = 1) -> None:
        """Add an answer, "ok" or an error's code; or several that took so many seconds each."""
        if code == "ok":
            self.success.add(seconds * count, count)
        else:
            self.fail.add(seconds)
            self.failures[_REASON_OF_CODE.get(code, "OTHER")] += 1

    def touch(self) -> None:
        """Note that a request was answered now."""
        self.answered_at = self.wall_clock()

    @property
    def last_inference(self) -> int:
        """When a request was last answered, in milliseconds since 1970; 0 for never."""
        return round(self.answered_at * 1e3)

    def to_document(self, name: str, version: str) -> dict[str, Any]:
        """As a ModelStatistics."""
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
                "compute_input": self.join.to_document(),
                "compute_infer": self.infer.to_document(),
                "compute_output": self.split.to_document(),
                "cache_hit": self.cache_hit.to_document(),
                "cache_miss": self.cache_miss.to_document(),
            },
            "response_stats": {},
            "batch_stats": [batch.to_document(rows) for rows, batch in sorted(self.batches.items())],
            "memory_usage": [],
        }
