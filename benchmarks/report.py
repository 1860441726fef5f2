"""What a comparison found, as a table, as JSON with the versions, and as a picture."""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import time
from collections.abc import Mapping
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from contenders import Contender, Round
from servers import SERVERS

__all__ = ["describe_machine", "print_table", "write_json", "write_plot"]

_PACKAGES = ("tidemill", "onnxruntime", "numpy", "uvicorn", "uvloop", "httptools", "grpcio", "tritonclient")
_REFERENCES = ("floor", "onnxruntime")


def median(contender: Contender, name: str) -> float:
    """The median over the rounds of a field of Round."""
    return float(statistics.median(getattr(it, name) for it in contender.rounds))


def share(one: Contender, reference: Contender) -> float:
    """The median of the rounds' ratios of rows a second, so that a disturbance of a round hits both."""
    pairs = zip(one.rounds, reference.rounds, strict=True)
    return statistics.median(a.rows_per_second / b.rows_per_second for a, b in pairs)


def references(it: Contender, contenders: list[Contender]) -> dict[str, Contender]:
    """What a contender is held against: the floor under as many connections, the bare runtime at its best batch."""
    same = [other for other in contenders if other.workload == it.workload]
    floors = [other for other in same if other.name == "floor" and it.connections in (0, other.connections)]
    bare = [other for other in same if other.name == "onnxruntime"]
    return {found[0].name: max(found, key=_rate) for found in (floors, bare) if found}


def _rate(it: Contender) -> float:
    return median(it, "rows_per_second")


def print_table(contenders: list[Contender]) -> None:
    """One line a contender, with its shares of the floor's and the bare runtime's rows a second."""
    for workload in dict.fromkeys(it.workload for it in contenders):
        print(f"\n{workload:34}{'rows/s':>11}{'spread':>8}{'p50 ms':>9}{'p99 ms':>9}{'CPU us':>9}", end="")
        print(f"{'of floor':>10}{'of bare':>9}")
        for it in contenders:
            if it.workload == workload:
                print(_line(it, references(it, contenders)))


def _line(it: Contender, others: Mapping[str, Contender]) -> str:
    rates = [round_.rows_per_second for round_ in it.rounds]
    numbers = f"{_rate(it):11,.0f}{(max(rates) - min(rates)) / _rate(it):8.1%}"
    numbers += "".join(f"{median(it, name):9,.2f}" for name in ("p50_ms", "p99_ms"))
    shares = "".join(f"{share(it, others[name]):9.3f}" if name in others else f"{'':9}" for name in _REFERENCES)
    return f"{it!s:34}{numbers}{median(it, 'cpu_us'):9,.1f} {shares}"


def describe_machine(more: Mapping[str, str]) -> dict[str, Any]:
    """The machine and the versions; `more` are those of other programs."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return {
        "cpu": next(iter(models), platform.machine()),
        "cpus": os.cpu_count(),
        "system": platform.platform(),
        "python": platform.python_version(),
        **{name: _version(name) for name in _PACKAGES},
        **more,
    }


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def write_json(contenders: list[Contender], settings: argparse.Namespace, machine: dict[str, Any]) -> Path:
    """Everything that was measured, under benchmarks/results."""
    plain = {name: str(value) if isinstance(value, Path) else value for name, value in vars(settings).items()}
    result = {"settings": plain, "machine": machine, "contenders": [_record(it, contenders) for it in contenders]}
    target = Path(__file__).parent / "results" / f"suite-{time.strftime('%Y%m%d-%H%M%S')}.json"
    target.parent.mkdir(exist_ok=True)
    target.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return target


def _record(it: Contender, contenders: list[Contender]) -> dict[str, Any]:
    return {
        "workload": it.workload,
        "contender": it.name,
        "detail": it.detail,
        "medians": {name: median(it, name) for name in Round.__dataclass_fields__},
        "shares": {name: share(it, other) for name, other in references(it, contenders).items()},
        "rounds": [asdict(round_) for round_ in it.rounds],
    }


def write_plot(contenders: list[Contender], target: Path) -> None:
    """Rows a second of each contender, a panel a workload; bars end at the median, lines reach from least to most."""
    import matplotlib as mpl

    mpl.use("agg")
    from matplotlib import pyplot

    workloads = list(dict.fromkeys(it.workload for it in contenders))
    heights = [sum(it.workload == workload for it in contenders) for workload in workloads]
    size = (8, 0.7 * len(workloads) + 0.26 * sum(heights))
    figure, panels = pyplot.subplots(len(workloads), figsize=size, height_ratios=heights, squeeze=False)
    for panel, workload in zip(panels[:, 0], workloads, strict=True):
        _draw(panel, workload, [it for it in contenders if it.workload == workload])
    figure.tight_layout()
    figure.savefig(target, dpi=100)
    pyplot.close(figure)


def _draw(panel: Any, workload: str, contenders: list[Contender]) -> None:
    rates = [[it.rows_per_second for it in contender.rounds] for contender in contenders]
    middles = [statistics.median(it) for it in rates]
    below = [middle - min(it) for middle, it in zip(middles, rates, strict=True)]
    above = [max(it) - middle for middle, it in zip(middles, rates, strict=True)]
    names, colours = [str(it) for it in contenders], [_colour(it.name) for it in contenders]
    panel.barh(names, middles, xerr=[below, above], color=colours, height=0.7)
    panel.invert_yaxis()
    panel.set_xscale("log")
    panel.set_title(f"{workload}: rows a second", fontsize=9, loc="left")
    panel.tick_params(labelsize=8)


def _colour(name: str) -> str:
    if name.startswith("tidemill"):
        return "#1f77b4"
    return "#ff9f40" if name in SERVERS else "#999999"
