"""Notices that a model has broken: several runs in a row failed through no fault of the requests; knows no model."""

from __future__ import annotations

from collections.abc import Callable

from tidemill.batching.record import BatchRecord, Observer

__all__ = ["RUNS", "break_after"]

RUNS = 5
"""Failed runs in a row after which a model counts as broken."""


def break_after(on_broken: Callable[[str], None], observer: Observer | None, runs: int = RUNS) -> Observer:
    """Make an observer that counts failures.

    Args:
        on_broken: Called once, with the reason.
        observer: Told of every batch first.
        runs: How many runs in a row must fail, with every request in them.
    """
    failed = 0

    def observe(record: BatchRecord) -> None:
        nonlocal failed
        if observer:
            observer(record)
        if record.broken:
            failed = failed + 1 if record.broken == record.requests else 0
        elif record.failures < record.requests:
            failed = 0
        if failed == runs:
            failed += 1
            on_broken(f"{runs} runs in a row failed, the last with: {record.fault}")

    return observe
