"""Where a request's time goes inside the server: differences of the statistics extension's sums; knows no transport."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["ServerShares"]

_PARTS = {"queue": "queue", "compute_input": "input", "compute_infer": "infer", "compute_output": "output"}


@dataclass(frozen=True, slots=True)
class ServerShares:
    """Means of one request, in milliseconds, between two looks at the statistics.

    Attributes:
        total: From first byte to answer.
        queue: Waiting for a run.
        input: Joining its batch.
        infer: The run.
        output: Splitting the results.
        rows_per_run: The mean batch.
    """

    total: float
    queue: float
    input: float
    infer: float
    output: float
    rows_per_run: float

    @property
    def other(self) -> float:
        """What is left of the total: reading, checking and writing requests, and waiting for the event loop."""
        return max(0.0, self.total - self.queue - self.input - self.infer - self.output)

    @classmethod
    def between(cls, before: Mapping[str, Any], after: Mapping[str, Any]) -> ServerShares | None:
        """The difference of two statistics of one model version, as the protocol's JSON; None if nothing ran."""
        earlier, later = before["inference_stats"], after["inference_stats"]
        total = _mean_ms(earlier, later, "success")
        runs = int(after["execution_count"]) - int(before["execution_count"])
        if total is None or runs <= 0:
            return None
        parts = {name: _mean_ms(earlier, later, key) or 0.0 for key, name in _PARTS.items()}
        rows = int(after["inference_count"]) - int(before["inference_count"])
        return cls(total=total, rows_per_run=rows / runs, **parts)


def _mean_ms(before: Mapping[str, Any], after: Mapping[str, Any], key: str) -> float | None:
    none = {"count": 0, "ns": 0}
    one, other = before.get(key, none), after.get(key, none)
    count = int(other.get("count", 0)) - int(one.get("count", 0))
    return (int(other.get("ns", 0)) - int(one.get("ns", 0))) / count / 1e6 if count > 0 else None
