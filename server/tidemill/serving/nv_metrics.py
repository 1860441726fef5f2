"""The counters that Triton's dashboards and autoscaling recipes ask for, under Triton's names and in microseconds.

They are written here because prometheus_client ends every counter's name in `_total`, which these do not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from tidemill.batching.record import BatchRecord

__all__ = ["NvCounts", "format_nv_metrics"]

_REASONS = {
    "unavailable": "REJECTED",
    "deadline_exceeded": "REJECTED",
    "cancelled": "CANCELED",
    "inference_failed": "BACKEND",
    "unprocessable": "BACKEND",
}
_HELP = {
    "nv_inference_request_success": "Number of successful inference requests",
    "nv_inference_request_failure": "Number of failed inference requests, by reason",
    "nv_inference_count": "Number of inferences performed, in rows",
    "nv_inference_exec_count": "Number of model executions",
    "nv_inference_request_duration_us": "Cumulative request duration of successful requests",
    "nv_inference_queue_duration_us": "Cumulative time that requests waited in the queue",
    "nv_inference_compute_infer_duration_us": "Cumulative time of the runs that requests took part in",
}


@dataclass(slots=True)
class NvCounts:
    """The running sums of one model."""

    values: Counter[str] = field(default_factory=Counter)
    failures: Counter[str] = field(default_factory=Counter)

    def executed(self, batch: BatchRecord) -> None:
        """Add one run; every request in it is charged the whole run, as Triton does."""
        self.values["nv_inference_count"] += batch.rows
        self.values["nv_inference_exec_count"] += 1
        self.values["nv_inference_queue_duration_us"] += round(sum(batch.queue_seconds) * 1e6)
        self.values["nv_inference_compute_infer_duration_us"] += round(batch.run_seconds * 1e6) * batch.requests

    def answered(self, code: str, seconds: float) -> None:
        """Add one answer: "ok" or an error's code."""
        if code != "ok":
            self.failures[_REASONS.get(code, "OTHER")] += 1
            return
        self.values["nv_inference_request_success"] += 1
        self.values["nv_inference_request_duration_us"] += round(seconds * 1e6)


def format_nv_metrics(models: Mapping[tuple[str, str], NvCounts]) -> str:
    """The text page of all models' counts, by (model, version)."""
    lines: list[str] = []
    for name, text in _HELP.items():
        lines += [f"# HELP {name} {text}", f"# TYPE {name} counter"]
        for labels, counts in models.items():
            lines += _failures(name, labels, counts) if name.endswith("failure") else [_line(name, labels, counts)]
    return "\n".join(lines) + "\n"


def _line(name: str, labels: tuple[str, str], counts: NvCounts) -> str:
    return f"{name}{{{_labels(labels)}}} {counts.values[name]}"


def _failures(name: str, labels: tuple[str, str], counts: NvCounts) -> list[str]:
    reasons = dict.fromkeys([*_REASONS.values(), "OTHER"])
    return [f'{name}{{{_labels(labels)},reason="{reason}"}} {counts.failures[reason]}' for reason in reasons]


def _labels(labels: tuple[str, str]) -> str:
    model, version = (label.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") for label in labels)
    return f'model="{model}",version="{version}"'
