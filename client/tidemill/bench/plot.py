"""A report as a picture; knows no files but the one that it writes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tidemill.bench.result import Report, Result

__all__ = ["write_plot"]

_PARTS = ("queue", "input", "infer", "output", "other")
_DOTS_PER_INCH = 110


def write_plot(report: Report, path: Path) -> None:
    """Write a PNG: latency over throughput of each wire, and where the server's time goes.

    Raises:
        ModuleNotFoundError: matplotlib is not installed.
    """
    # The plain figure, not pyplot: no window, no state of the process.
    from matplotlib.figure import Figure

    results = [result for result in report.results if result.latency_ms]
    shared = [result for result in results if result.server]
    figure = Figure(figsize=(11 if shared else 6, 4), layout="constrained")
    panels = figure.subplots(1, 2 if shared else 1, squeeze=False)[0]
    _draw_latencies(panels[0], results)
    if shared:
        _draw_shares(panels[1], shared)
    figure.suptitle(report.model, fontsize=10)
    figure.savefig(path, dpi=_DOTS_PER_INCH)


def _draw_latencies(panel: Any, results: Sequence[Result]) -> None:
    for series in dict.fromkeys(map(_series, results)):
        chosen = [result for result in results if _series(result) == series]
        rates = [result.rate.value for result in chosen]
        (line,) = panel.plot(rates, [it.latency_ms["p50"].value for it in chosen], "o-", label=f"{series}, p50")
        tops = [it.latency_ms["p99"] for it in chosen]
        values = [it.value for it in tops]
        reach = [[it.value - it.low for it in tops], [it.high - it.value for it in tops]]
        panel.errorbar(
            rates, values, yerr=reach, fmt="^--", color=line.get_color(), alpha=0.6, capsize=2, label=f"{series}, p99"
        )
    panel.set_xlabel("rows a second")
    panel.set_ylabel("latency, ms")
    panel.set_yscale("log")
    panel.set_xlim(left=0)
    panel.grid(alpha=0.3)
    panel.legend(fontsize=7)


def _series(result: Result) -> str:
    load = result.load
    return load.wire if load.concurrency else f"{load.wire}, {load.arrivals}"


def _draw_shares(panel: Any, results: Sequence[Result]) -> None:
    names = [str(result.load) for result in results]
    left = [0.0] * len(results)
    for part in _PARTS:
        widths = [float(getattr(result.server, part)) for result in results]
        panel.barh(names, widths, left=left, label=part, height=0.7)
        left = [start + width for start, width in zip(left, widths, strict=True)]
    panel.invert_yaxis()
    panel.set_xlabel("mean time in the server, ms")
    panel.tick_params(axis="y", labelsize=7)
    panel.legend(fontsize=7)
