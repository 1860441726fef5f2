"""The estimate that decides between loop and thread."""

from __future__ import annotations

import math

from tidemill.batching.pace import Pace


def test_nothing_is_quick_before_it_was_measured():
    assert not Pace().is_below(3600)
    assert Pace().is_below(math.inf)


def test_slow_runs_count_at_once_and_are_forgotten_slowly():
    pace = Pace()
    pace.record(1e-4)
    assert pace.is_below(2e-4)

    pace.record(1e-3)
    pace.record(1e-4)
    assert not pace.is_below(2e-4)

    for _ in range(20):
        pace.record(1e-4)
    assert pace.is_below(2e-4)
