"""The cost table, and the groups that follow from it."""

from __future__ import annotations

import asyncio
from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemill.batching.cost import CostTable
from tidemill.batching.cost_policy import CAUTION, OVERHEAD, CostPolicy
from tidemill.batching.options import BatchingOptions
from tidemill.batching.pending import Pending, batch_key

FLAT = {(1, 0): 1.0, (4, 0): 1.5, (8, 0): 2.0}
"""A model for which bigger is better."""
STEEP = {(1, 0): 1.0, (2, 0): 1.2, (4, 0): 4.0, (8, 0): 12.0}
"""One that is best run two rows at a time."""
LENGTHS = {(1, 4): 1.0, (8, 4): 1.6, (1, 64): 10.0, (8, 64): 100.0}


@pytest.fixture
def loop():
    loop = asyncio.new_event_loop()
    yield loop
    loop.close()


def requests(loop, lengths, rows=1):
    made = []
    for at, length in enumerate(lengths):
        feed = {"x": np.zeros((rows, length), np.int8)}
        pending = Pending(feed, rows, batch_key(feed, rows, {"x": (1,)}), float(at), loop.create_future())
        pending.length = length
        made.append(pending)
    return made


def chosen(pendings, measured, limit=8):
    policy = CostPolicy(CostTable(measured), BatchingOptions(max_batch_size=limit))
    return policy.choose(iter(pendings))


@pytest.mark.parametrize(
    ("rows", "length", "seconds"),
    [(1, 4, 1.0), (8, 64, 100.0), (1, 34, 5.5), (16, 4, 3.36), (1, 128, 20.0), (1, 1, 1.0), (0, 4, 1.0)],
)
def test_between_points_it_is_linear_and_beyond_in_proportion(rows, length, seconds):
    assert CostTable(LENGTHS).seconds(rows, length) == pytest.approx(seconds)


def test_a_length_with_fewer_points_is_filled_up():
    table = CostTable({(1, 4): 1.0, (8, 4): 2.0, (1, 64): 10.0})

    assert table.seconds(8, 64) == pytest.approx(84.0)


def test_it_learns_what_is_slower_now_and_forgets_flukes():
    table = CostTable(FLAT)
    for _ in range(40):
        table.record(4, 0, 3.0)
    assert table.seconds(4) == pytest.approx(3.0, rel=0.1)
    assert table.seconds(1) < 2.0

    expected = table.seconds(8)
    table.record(8, 0, 1000.0)
    assert table.seconds(8) < 1.2 * expected
    assert set(table.points) == set(FLAT)


def test_a_machine_that_is_slower_as_a_whole_changes_no_plans():
    table = CostTable(FLAT)
    for turn in range(200):
        rows = (1, 4, 8)[turn % 3]
        table.record(rows, 0, 3 * FLAT[rows, 0])

    for (rows, _), seconds in FLAT.items():
        assert table.seconds(rows) == pytest.approx(3 * seconds, rel=0.1)


def test_noise_makes_no_new_plans():
    table = CostTable(FLAT)
    table.record(4, 0, 1.52)

    assert table.revision == 0


@pytest.mark.parametrize(
    ("measured", "waiting", "joined"),
    [(FLAT, 8, 8), (FLAT, 3, 3), (STEEP, 8, 2), (STEEP, 1, 1), (STEEP, 3, 2), (FLAT, 40, 8)],
)
def test_equal_requests_are_joined_as_far_as_it_pays(loop, measured, waiting, joined):
    batch, _, _ = chosen(requests(loop, [0] * waiting), measured)

    assert len(batch) == joined
    assert [pending.enqueued for pending in batch] == list(range(joined))


def test_short_ones_are_joined_and_long_ones_run_alone(loop):
    pendings = requests(loop, [4, 64, 5, 60, 4])

    assert {pending.length for pending in chosen(pendings, LENGTHS).batch} == {4, 5}
    assert [pending.length for pending in chosen(pendings[1:], LENGTHS).batch] == [64]


def test_whoever_waits_longest_is_in_the_group(loop):
    pendings = requests(loop, [64, 4, 4, 4, 4, 4, 4])

    assert chosen(pendings, LENGTHS).batch[0] is pendings[0]


@settings(max_examples=60, deadline=None)
@given(lengths=st.lists(st.integers(1, 80), min_size=2, max_size=7), limit=st.integers(1, 8))
def test_no_division_into_groups_of_like_length_is_quicker(lengths, limit):
    loop = asyncio.new_event_loop()
    table = CostTable(LENGTHS)
    policy = CostPolicy(table, BatchingOptions(max_batch_size=limit))
    left = requests(loop, lengths)[: 2 * limit]
    ordered = sorted(pending.length for pending in left)

    taken = 0.0
    while left:
        batch = policy.choose(iter(left)).batch
        assert left[0] in batch
        taken += expected(table, sorted(pending.length for pending in batch))
        left = [pending for pending in left if pending not in batch]

    assert taken <= min(divided(table, ordered, limit)) + 1e-6
    loop.close()


def divided(table, ordered, limit):
    """The seconds of every division of the ordered lengths into groups of neighbours."""
    places = range(1, len(ordered))
    for count in range(len(ordered)):
        for cuts in combinations(places, count):
            groups = [ordered[a:b] for a, b in pairwise((0, *cuts, len(ordered)))]
            if all(len(group) <= limit for group in groups):
                yield sum(expected(table, group) for group in groups)


def expected(table, lengths):
    return table.seconds(len(lengths), lengths[-1]) * (CAUTION if len(lengths) > 1 else 1) + OVERHEAD


def test_now_and_then_a_larger_batch_is_tried(loop):
    policy = CostPolicy(
        CostTable({(1, 4): 1.0, (2, 4): 3.0, (1, 64): 1.0, (2, 64): 3.0}), BatchingOptions(max_batch_size=8)
    )
    sizes = []
    for _ in range(128):
        batch = policy.choose(iter(requests(loop, [16, 60, 18, 4]))).batch
        sizes.append([pending.length for pending in batch])
    assert sizes.count([16]) == 126
    assert sizes[63] == sizes[127] == [16, 18]
