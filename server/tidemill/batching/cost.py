"""How long a run of so many rows of such a length takes; a table that learns, and knows neither model nor clock."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

__all__ = ["CostTable"]

_LEARNING = 0.1
"""How far a new measurement moves what it falls on."""
_DRIFT = 0.1
"""How far it moves everything: when other work slows the machine down, no size is better or worse for it."""
_CAUTION = 1.05
"""By how much runs larger than all measured ones are taken to be slower, per row: nothing speaks for making them."""
_OUTLIER = 2.0
"""A run that took that many times longer or shorter than expected counts as no more: something else was going on."""
_DEADBAND = 0.05
"""Deviations up to this share are noise and not worth new plans."""


class CostTable:
    """Seconds over rows and length, interpolated between measured points.

    Between rows and between lengths it is linear; beyond the last point of either, a run takes in proportion longer,
    and a little more.
    """

    def __init__(self, measured: Mapping[tuple[int, int], float]) -> None:
        """Begin with measurements.

        Args:
            measured: Seconds by (rows, length). Each length should have some; use length 0 if lengths do not vary.
        """
        self._lengths = sorted({length for _, length in measured})
        self._rows = np.array(sorted({rows for rows, _ in measured}), np.float64)
        self._seconds = np.array([self._measured_row(measured, length) for length in self._lengths])
        self._columns: dict[tuple[int, int], list[float]] = {}
        self._grids: dict[int, npt.NDArray[np.float64]] = {}
        self.revision = 0

    @property
    def points(self) -> dict[tuple[int, int], float]:
        """Seconds by (rows, length) as they are believed now."""
        return {
            (int(rows), length): float(self._seconds[index, place])
            for index, length in enumerate(self._lengths)
            for place, rows in enumerate(self._rows)
        }

    def seconds(self, rows: int, length: int = 0) -> float:
        """What a run is expected to take."""
        return self.column(length, max(rows, 1))[max(rows, 1)]

    def column(self, length: int, most: int) -> list[float]:
        """What runs of 0 to `most` rows of a length are expected to take."""
        key = length, most
        if key not in self._columns:
            low, high, share = _between(self._lengths, length)
            grid = self._grid(most)
            between = grid[low] * (1 - share) + grid[high] * share
            if length > self._lengths[-1] > 0:
                between = between * (length / self._lengths[-1])
            self._columns[key] = between.tolist()
        return self._columns[key]

    def record(self, rows: int, length: int, seconds: float) -> None:
        """Take in how long a run took."""
        ratio = seconds / self.seconds(rows, length)
        if abs(ratio - 1) <= _DEADBAND:
            return
        ratio = min(max(ratio, 1 / _OUTLIER), _OUTLIER)
        low, high, share = _between(self._lengths, length)
        left, right, part = _between(self._rows.tolist(), rows)
        self._seconds *= ratio**_DRIFT
        for index, nearness in ((low, 1 - share), (high, share)):
            for place, weight in ((left, 1 - part), (right, part)):
                self._seconds[index, place] *= ratio ** (_LEARNING * nearness * weight)
        self._columns.clear()
        self._grids.clear()
        self.revision += 1

    def _measured_row(self, measured: Mapping[tuple[int, int], float], length: int) -> npt.NDArray[np.float64]:
        known = sorted((rows, seconds) for (rows, at), seconds in measured.items() if at == length)
        rows, seconds = zip(*known, strict=True)
        return _along(self._rows, np.array(rows, np.float64), np.array(seconds))

    def _grid(self, most: int) -> npt.NDArray[np.float64]:
        """Runs of 0 to `most` rows, of each measured length."""
        if most not in self._grids:
            wanted = np.arange(most + 1.0)
            self._grids[most] = np.array([_along(wanted, self._rows, seconds) for seconds in self._seconds])
        return self._grids[most]


def _between(points: Sequence[float], value: float) -> tuple[int, int, float]:
    """The two points around a value, and how far it is from the first to the second; at the ends twice the last."""
    high = min(bisect_left(points, value), len(points) - 1)
    low = max(high - 1, 0)
    if value >= points[high] or low == high:
        return high, high, 0.0
    if value <= points[low]:
        return low, low, 0.0
    return low, high, float((value - points[low]) / (points[high] - points[low]))


def _along(
    rows: npt.NDArray[np.float64], known: npt.NDArray[np.float64], seconds: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    beyond = np.where(rows > known[-1], rows / known[-1] * _CAUTION, 1.0)
    found: npt.NDArray[np.float64] = np.interp(rows, known, seconds) * beyond
    return found
