"""A report as text for people; knows nothing of terminals."""

from __future__ import annotations

from collections.abc import Sequence

from tidemill.bench.compare import Change
from tidemill.bench.estimates import Estimate
from tidemill.bench.result import Report, Result

__all__ = ["comparison_table", "report_table"]

_COLUMNS = (
    *("load", "rows/s", "+-", "p50 ms", "p90 ms", "p99 ms", "p99 within"),
    *("queue", "run", "other", "batch", "errors"),
)


def report_table(report: Report) -> str:
    """One line a load; then what a reader must know.

    "+-" is half the 95 % interval of the rate. "queue", "run" and "other" are the server's means in milliseconds
    (run: with joining and splitting batches), "batch" is the mean of rows a run.
    """
    lines = [_title(report), "", *_aligned([_COLUMNS, *(_cells(result) for result in report.results)])]
    notes = [f"{result.load}: {note}" for result in report.results for note in result.notes]
    notes += [f"{result.load}: {code}: {text}" for result in report.results for code, text in result.texts.items()]
    return "\n".join([*lines, *([""] if notes else []), *notes])


def _title(report: Report) -> str:
    server = f"{report.server.get('name', '')} {report.server.get('version', '')}".strip()
    inputs = ", ".join(f"{name} {shape}" for name, shape in report.server.get("inputs", {}).items())
    return f"{report.model} on {server or 'a server'}: {inputs}"


def _cells(result: Result) -> tuple[str, ...]:
    latencies = result.latency_ms
    p99 = latencies.get("p99")
    server = result.server
    run = server and server.input + server.infer + server.output
    return (
        str(result.load),
        f"{result.rate.value:,.0f}",
        f"{(result.rate.high - result.rate.low) / 2 / max(result.rate.value, 1e-9):.1%}",
        *(_number(latencies.get(name)) for name in ("p50", "p90", "p99")),
        f"{p99.low:.2f}..{p99.high:.2f}" if p99 else "-",
        *(f"{it:.2f}" if it is not None else "-" for it in (server and server.queue, run, server and server.other)),
        f"{server.rows_per_run:.1f}" if server else "-",
        ", ".join(f"{count} {code}" for code, count in result.errors.items()) or "0",
    )


def _number(estimate: Estimate | None) -> str:
    return f"{estimate.value:.2f}" if estimate else "-"


def comparison_table(changes: Sequence[Change], names: tuple[str, str]) -> str:
    """One line a load and figure that both reports have."""
    head = ("load", "figure", names[0], names[1], "ratio", "95 % interval", "p", "")
    rows = [
        (
            str(it.load),
            it.figure,
            f"{it.before:,.2f}",
            f"{it.after:,.2f}",
            f"{it.ratio.value:.3f}",
            f"{it.ratio.low:.3f}..{it.ratio.high:.3f}",
            f"{it.p:.3f}" if it.p >= 0.001 else "<0.001",
            it.verdict,
        )
        for it in changes
    ]
    return "\n".join(_aligned([head, *rows]))


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """The first column to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]

    def line(row: Sequence[str]) -> str:
        first, *others = zip(row, widths, strict=True)
        return "  ".join([first[0].ljust(first[1]), *(cell.rjust(width) for cell, width in others)]).rstrip()

    return [line(row) for row in rows]
