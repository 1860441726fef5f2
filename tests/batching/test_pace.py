"""The estimate that decides between loop and thread."""

from __future__ import annotations

import math

from tidemill.batching.pace import Pace

LIMIT = 2e-4


def paced(*runs: tuple[float, float, bool], pace: Pace | None = None) -> Pace:
    pace = pace or Pace(LIMIT)
    for seconds, busy, on_loop in runs:
        pace.record(seconds, busy, on_loop=on_loop)
    return pace


def runs_until_tried_again(pace: Pace) -> int:
    count = 0
    while not pace.is_quick:
        pace.record(1e-3, 1e-5, on_loop=False)
        count += 1
    return count


def test_nothing_is_quick_before_it_was_measured():
    assert not Pace(3600).is_quick
    assert not Pace(0).is_quick
    assert Pace(math.inf).is_quick


def test_slow_runs_count_at_once_and_are_forgotten_slowly():
    quick, slow = (1e-4, 1e-4, False), (1e-3, 1e-3, False)
    assert paced(quick).is_quick
    assert not paced(quick, slow, quick).is_quick
    assert paced(quick, slow, *[quick] * 20).is_quick


def test_waiting_for_the_interpreter_on_a_thread_does_not_make_a_run_slow():
    assert paced((5e-3, 2e-5, False)).is_quick


def test_a_run_that_waits_for_something_else_is_tried_less_and_less():
    pace = paced((5e-3, 2e-5, False))
    found = []
    for _ in range(4):
        pace.record(5e-3, 2e-5, on_loop=True)
        found.append(runs_until_tried_again(pace))
    assert found[0] >= 16
    assert found[-1] >= 2 * found[0]
    assert found == sorted(found)


def test_a_disturbed_run_on_the_loop_is_soon_forgiven():
    pace = paced((1e-5, 1e-5, False), *[(1e-5, 1e-5, True)] * 10, (5e-3, 1e-5, True))
    assert not pace.is_quick
    assert runs_until_tried_again(pace) < 64
