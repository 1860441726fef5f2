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


def test_runs_that_wait_for_something_else_are_tried_less_and_less():
    pace = paced((5e-3, 2e-5, False))
    found = []
    for _ in range(4):
        paced(*[(5e-3, 2e-5, True)] * 3, pace=pace)
        found.append(runs_until_tried_again(pace))
    assert found == [4, 8, 16, 32]


def test_large_runs_on_the_loop_count_at_once():
    assert not paced((1e-5, 1e-5, False), (5e-3, 5e-3, True)).is_quick


def test_a_busy_machine_is_soon_forgiven():
    quick, disturbed = (1e-5, 1e-5, True), (5e-3, 1e-5, True)
    assert paced((1e-5, 1e-5, False), disturbed, quick, disturbed, disturbed, quick).is_quick
    assert runs_until_tried_again(paced((1e-5, 1e-5, False), *[disturbed] * 3)) == 4
