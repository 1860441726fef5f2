from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tidemill.errors import InvalidArgument
from tidemill.repository.measuring import LENGTHS, ROWS, best_rows, measure


class Machine:
    """A model whose runs take a time that is a function of their size, on a clock of its own."""

    def __init__(self, per_row: float, fixed: float = 0.0, longest: int = 1 << 30) -> None:
        self.now = 0.0
        self._per_row, self._fixed, self._longest = per_row, fixed, longest

    def run(self, feed: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        rows, length = feed["x"].shape
        if length > self._longest:
            raise InvalidArgument("too long")
        self.now += self._fixed + self._per_row * rows * length
        return {}

    def measured(self, *lengths: int) -> dict[tuple[int, int], float]:
        return measure(self.run, lambda rows, n: {"x": np.zeros((rows, n or 1))}, lengths, lambda: self.now)


def test_every_size_is_measured_if_there_is_time() -> None:
    measured = Machine(1e-9, fixed=1e-5).measured(*LENGTHS)
    assert set(measured) == {(rows, length) for rows in ROWS for length in LENGTHS}
    assert best_rows(measured) == 128


def test_a_slow_model_takes_bounded_time() -> None:
    for per_row in (1e-4, 1e-3, 1e-2, 0.4, 10.0):
        machine = Machine(per_row)
        measured = machine.measured(4, 256)
        assert machine.now < max(3.0, 4 * 4 * per_row + 0.1)
        assert {length for _, length in measured} == {length for rows, length in measured if rows == 1}


def test_lengths_that_the_model_refuses_are_left_out() -> None:
    measured = Machine(1e-7, longest=16).measured(*LENGTHS)
    assert {length for _, length in measured} == {4, 8, 16}
    assert Machine(1e-7, longest=0).measured(0) == {}


def test_more_rows_are_best_as_long_as_they_gain() -> None:
    assert best_rows({}) == 1
    assert best_rows(Machine(1e-5).measured(0)) == 1
    assert best_rows({(1, 0): 1.0, (2, 0): 1.2, (4, 0): 2.0, (8, 0): 4.0}) == 4
    assert best_rows({(1, 4): 1.0, (2, 4): 1.2, (1, 64): 9.0, (2, 64): 18.0}) == 2
