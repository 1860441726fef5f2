from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from tidemill.bundle.config import ModelConfig
from tidemill.engine.artifact import ArtifactCache
from tidemill.errors import InvalidArgument
from tidemill.repository.kept_costs import KeptCosts
from tidemill.repository.loading import open_instance, warm
from tidemill.repository.measuring import LENGTHS, ROWS, best_rows, measure
from tidemill.repository.starting import plan_batching


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


def test_what_was_measured_is_kept_under_what_it_follows_from(tmp_path: Path) -> None:
    kept, facts = KeptCosts(tmp_path / "costs"), {"graph": "a", "threads": 2}
    points = {(1, 0): 0.5, (2, 4): 0.25}
    assert kept.recall(facts, lambda: dict(points)) == points
    assert kept.recall(facts, dict) == points
    assert KeptCosts(tmp_path / "costs", strict=True).recall(dict(reversed(facts.items())), dict) == points
    assert kept.recall({**facts, "threads": 1}, dict) == {}


@pytest.mark.parametrize("content", ["", "{", "[[1]]", "[[1, 0, -1]]", "[[1, 0, NaN]]", "[[0, 0, 1]]", "[1]", "null"])
def test_what_is_damaged_is_measured_again(tmp_path: Path, content: str) -> None:
    kept = KeptCosts(tmp_path)
    kept.recall({}, lambda: {(1, 0): 0.5})
    (file,) = tmp_path.iterdir()
    file.write_text(content)
    assert kept.recall({}, lambda: {(1, 0): 0.75}) == {(1, 0): 0.75}
    assert kept.recall({}, dict) == {(1, 0): 0.75}


def test_a_folder_that_is_only_read_is_left_alone(tmp_path: Path) -> None:
    assert KeptCosts(tmp_path, strict=True).recall({}, lambda: {(1, 0): 0.5}) == {(1, 0): 0.5}
    (tmp_path / "file").touch()
    assert KeptCosts(tmp_path / "file").recall({}, lambda: {(1, 0): 0.5}) == {(1, 0): 0.5}
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_the_latest_are_kept(tmp_path: Path) -> None:
    kept = KeptCosts(tmp_path)
    for number in range(260):
        kept.recall({"number": number}, lambda: {(1, 0): 0.5})
        for file in tmp_path.iterdir():
            os.utime(file, (1, file.stat().st_mtime - 1))
    assert len([*tmp_path.iterdir()]) == 256
    assert kept.recall({"number": 259}, dict)
    assert not kept.recall({"number": 0}, dict)


@pytest.mark.parametrize("isolation", ["none", "process"])
def test_a_second_start_measures_nothing(all_models: Path, tmp_path: Path, isolation: str) -> None:
    config = ModelConfig.model_validate({"batching": {"policy": "cost"}, "isolation": isolation})
    tables = []
    for threads in (1, 1, 2):
        settings = config.model_copy(update={"threads": threads})
        instance = open_instance(all_models / "sum" / "1", settings, ArtifactCache(tmp_path))
        plan = plan_batching(instance, warm(instance, settings), settings, KeptCosts(tmp_path))
        assert plan.costs
        tables.append(plan.costs.points)
        instance.close()
    assert tables[0] == tables[1]
    assert tables[1] != tables[2]
    assert len([*tmp_path.glob("*.costs.json")]) == 2
