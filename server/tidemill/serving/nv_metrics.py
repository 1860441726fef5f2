"""The counters that Triton's dashboards and autoscaling recipes ask for, under Triton's names and in microseconds.

They are written here because prometheus_client ends every counter's name in `_total`, which these do not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tidemill.serving.statistics import REASONS, Tally

__all__ = ["format_nv_metrics"]

_COUNTERS: dict[str, tuple[str, Callable[[Tally], int]]] = {
    "nv_inference_request_success": ("Number of successful inference requests", lambda tally: tally.success.count),
    "nv_inference_count": ("Number of inferences performed, in rows", lambda tally: tally.rows),
    "nv_inference_exec_count": ("Number of model executions", lambda tally: tally.executions),
    "nv_inference_request_duration_us": (
        "Cumulative request duration of successful requests",
        lambda tally: tally.success.microseconds,
    ),
    "nv_inference_queue_duration_us": (
        "Cumulative time that requests waited in the queue",
        lambda tally: tally.queue.microseconds,
    ),
    "nv_inference_compute_input_duration_us": (
        "Cumulative time of joining the batches that requests took part in",
        lambda tally: tally.join.microseconds,
    ),
    "nv_inference_compute_infer_duration_us": (
        "Cumulative time of the runs that requests took part in",
        lambda tally: tally.infer.microseconds,
    ),
    "nv_inference_compute_output_duration_us": (
        "Cumulative time of splitting the results of those batches",
        lambda tally: tally.split.microseconds,
    ),
    "nv_cache_num_hits_per_model": ("Requests whose answer was kept", lambda tally: tally.cache_hit.count),
    "nv_cache_num_misses_per_model": ("Requests whose answer was not kept", lambda tally: tally.cache_miss.count),
    "nv_cache_hit_duration_per_model": (
        "Cumulative time of finding answers that were kept",
        lambda tally: tally.cache_hit.microseconds,
    ),
    "nv_cache_miss_duration_per_model": (
        "Cumulative time of looking for answers that were not kept, and of keeping them",
        lambda tally: tally.cache_miss.microseconds,
    ),
}
_FAILURE = "nv_inference_request_failure"
_PENDING = "nv_inference_pending_request_count"


def format_nv_metrics(models: Mapping[tuple[str, str], Tally], pending: Mapping[tuple[str, str], int]) -> str:
    """The text page of all models' counts, and of how many requests wait, by (model, version)."""
    lines: list[str] = []
    for name, (text, read) in _COUNTERS.items():
        lines += _head(name, text, "counter")
        lines += [f"{name}{{{_labels(labels)}}} {read(tally)}" for labels, tally in models.items()]
    lines += _head(_FAILURE, "Number of failed inference requests, by reason", "counter")
    lines += [
        f'{_FAILURE}{{{_labels(labels)},reason="{reason}"}} {tally.failures[reason]}'
        for labels, tally in models.items()
        for reason in REASONS
    ]
    lines += _head(_PENDING, "Requests that wait for a run", "gauge")
    lines += [f"{_PENDING}{{{_labels(labels)}}} {pending.get(labels, 0)}" for labels in models]
    return "\n".join(lines) + "\n"


def _head(name: str, text: str, kind: str) -> list[str]:
    return [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]


def _labels(labels: tuple[str, str]) -> str:
    model, version = (label.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") for label in labels)
    return f'model="{model}",version="{version}"'
