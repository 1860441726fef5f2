"""What a user sees of a long transfer: a bar on a terminal, lines in a log elsewhere."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from threading import Lock
from typing import TextIO

__all__ = ["Advance", "Progress", "log_progress", "progress_for", "terminal_progress"]

_LOG = logging.getLogger("tidemill.weights")
_SECONDS_BETWEEN_LINES = 10.0

Advance = Callable[[int], None]
Progress = Callable[[str, int], AbstractContextManager[Advance]]
"""Takes what is transferred and its bytes; gives what is to be told of the bytes that came, from any thread."""


def progress_for(stream: TextIO | None = None) -> Progress:
    """A bar if the stream, stderr by default, is a terminal and rich is installed; else lines in the log."""
    if not (stream or sys.stderr).isatty():
        return log_progress
    try:
        import rich  # noqa: F401
    except ModuleNotFoundError:
        return log_progress
    return terminal_progress


@contextmanager
def terminal_progress(label: str, total: int) -> Iterator[Advance]:
    """A bar with size, speed and time left, on stderr."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn, TransferSpeedColumn
    from rich.progress import Progress as Bars

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Bars(*columns, TimeRemainingColumn(), console=Console(stderr=True)) as bars:
        task = bars.add_task(label, total=total)
        yield lambda count: bars.advance(task, count)


@contextmanager
def log_progress(label: str, total: int, clock: Callable[[], float] = time.monotonic) -> Iterator[Advance]:
    """One line at the start, one at the end, and one every ten seconds between."""
    start = last = clock()
    done, lock = 0, Lock()

    def advance(count: int) -> None:
        nonlocal done, last
        with lock:
            done += count
            if clock() - last < _SECONDS_BETWEEN_LINES:
                return
            last = clock()
        _LOG.info("fetching %s: %.1f of %.1f MB", label, done / 1e6, total / 1e6)

    _LOG.info("fetching %s: %.1f MB", label, total / 1e6)
    yield advance
    _LOG.info("fetched %s: %.1f MB in %.1f s", label, done / 1e6, clock() - start)
