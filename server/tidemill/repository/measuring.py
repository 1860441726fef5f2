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
_PASSES = 6
_CHEAP = 0.01
"""Seconds of a run that is tried whatever smaller ones say, and several times: beside traffic a single one may take
many times as long as it should, and would speak against all larger ones."""
_TRIES = 4
_WORSE = 1.05
"""By how much more rows must be slower, per row, for still more not to be tried."""
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
    begun = clock()
    measured: dict[tuple[int, int], float] = {}
    for rows, length in sorted(((r, n) for r in ROWS for n in lengths), key=lambda size: size[0] * (size[1] or 1)):
        expected = _expected(measured, rows, length)
        late = clock() + 2 * expected > begun + _SECONDS / 2
        useless = expected > _CHEAP and _has_passed_its_best(measured, rows, length)
        if late or expected > _LONGEST or useless:
            continue
        try:
            feed = make_feed(rows, length)
            run(feed)  # the first run of a size allocates
            seconds = _timed(run, feed, clock)
            again = _TRIES if seconds < _CHEAP else 0
            measured[rows, length] = min([seconds, *(_timed(run, feed, clock) for _ in range(again))])
        except TidemillError:
            continue
    _repeat(measured, lambda size: _timed(run, make_feed(*size), clock), lambda: clock() - begun)
    known = {length for rows, length in measured if rows == 1}
    return {size: seconds for size, seconds in measured.items() if size[1] in known}


def _repeat(
    measured: dict[tuple[int, int], float], time_once: Callable[[tuple[int, int]], float], passed: Callable[[], float]
) -> None:
    """Keep the least of several passes: a moment in which the machine is busy then hits all sizes, not some of them."""
    for _ in range(_PASSES):
        for size, seconds in measured.items():
            if passed() + seconds < _SECONDS:
                measured[size] = min(seconds, time_once(size))


def _has_passed_its_best(measured: Mapping[tuple[int, int], float], rows: int, length: int) -> bool:
    """Whether the last two batches were slower per row than a smaller one."""
    per_row = [seconds / r for (r, n), seconds in sorted(measured.items()) if n == length and r < rows]
    return len(per_row) > 2 and min(per_row[-2:]) > _WORSE * min(per_row[:-2])


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


def _timed(run: _Runner, feed: Mapping[str, Array], clock: Callable[[], float]) -> float:
    start = clock()
    run(feed)
    return clock() - start
