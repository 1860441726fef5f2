"""How long a model's runs take at load, in bounded time; knows the model as a callable."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TypeAlias

from tidemill.errors import TidemillError
from tidemill.protocol.types import Array

__all__ = ["LENGTHS", "ROWS", "best_rows", "measure"]

_Runner: TypeAlias = Callable[[Mapping[str, Array]], Mapping[str, Array]]
_MakeFeed: TypeAlias = Callable[[int, int], Mapping[str, Array]]

ROWS = (1, 2, 4, 8, 16, 32, 64, 128)
LENGTHS = (4, 8, 16, 32, 64, 128, 256)

_SECONDS = 1.0
"""What all measurements of a model may take together."""
_LONGEST = 0.1
"""Seconds of a run above which no larger ones are tried: they take in proportion longer."""
_REPEATS = 3
_GAIN = 0.95
"""By how much more rows must be quicker, per row, to be worth it."""


def measure(
    run: _Runner, make_feed: _MakeFeed, lengths: tuple[int, ...], clock: Callable[[], float] = time.perf_counter
) -> dict[tuple[int, int], float]:
    """Run generated inputs of growing size, the small ones first, until the time is up.

    Args:
        run: Runs the model.
        make_feed: Makes inputs of so many rows and such a length.
        lengths: The lengths to try; 0 for a model without a varying one.
        clock: Seconds.

    Returns:
        Seconds by (rows, length); each length that is in it has at least one row. Empty if the model refuses all.
    """
    end = clock() + _SECONDS
    measured: dict[tuple[int, int], float] = {}
    for rows, length in sorted(((r, n) for r in ROWS for n in lengths), key=lambda size: size[0] * (size[1] or 1)):
        expected = _expected(measured, rows, length)
        if expected > _LONGEST or clock() + expected * (_REPEATS + 1) > end:
            continue
        try:
            measured[rows, length] = _quickest(run, make_feed(rows, length), clock)
        except TidemillError:
            continue
    known = {length for rows, length in measured if rows == 1}
    return {size: seconds for size, seconds in measured.items() if size[1] in known}


def best_rows(measured: Mapping[tuple[int, int], float]) -> int:
    """The rows beyond which larger batches are no quicker per row, at the length that gains most; at least 1."""
    best = 1
    for (rows, length), seconds in measured.items():
        half = measured.get((rows // 2, length))
        if half is not None and seconds / rows <= half / (rows // 2) * _GAIN:
            best = max(best, rows)
    return best


def _expected(measured: Mapping[tuple[int, int], float], rows: int, length: int) -> float:
    """In proportion to the largest smaller run; 0 if there is none."""
    smaller = [
        (seconds * (rows * (length or 1)) / (r * (n or 1)), r * (n or 1))
        for (r, n), seconds in measured.items()
        if r <= rows and n <= length
    ]
    return max(smaller, key=lambda entry: entry[1], default=(0.0, 0))[0]


def _quickest(run: _Runner, feed: Mapping[str, Array], clock: Callable[[], float]) -> float:
    run(feed)  # the first run of a size allocates
    seconds = []
    for _ in range(_REPEATS):
        start = clock()
        run(feed)
        seconds.append(clock() - start)
    return min(seconds)
