"""Which requests the queue hands out, when and in which order."""

from __future__ import annotations

import asyncio
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.batching.options import BatchingOptions, LevelOptions
from tidemill.batching.pending import Pending, batch_key
from tidemill.batching.queue import FAIR_TURN, Queue
from tidemill.errors import ConfigError, InvalidArgument, QueueFull


@pytest.fixture
def loop():
    loop = asyncio.new_event_loop()
    yield loop
    loop.close()


def request(loop, rows=1, width=3, at=0.0, dtype=np.float32):
    feed = {"x": np.zeros((rows, width), dtype)}
    return Pending(feed, rows, batch_key(feed, rows), at, loop.create_future())


def queue_of(pendings, **options):
    queue = Queue(BatchingOptions(**options))
    for pending in pendings:
        queue.put(pending)
    return queue


@given(
    sizes=st.lists(st.tuples(st.integers(0, 5), st.integers(1, 3)), max_size=30),
    limit=st.integers(5, 12),
    preferred=st.lists(st.integers(1, 5), max_size=3),
)
def test_every_request_leaves_once_in_bounded_batches_of_one_shape(sizes, limit, preferred):
    loop = asyncio.new_event_loop()
    pendings = [request(loop, rows, width, at) for at, (rows, width) in enumerate(sizes)]
    queue = queue_of(pendings, max_batch_size=limit, preferred_batch_sizes=tuple(preferred))

    batches = []
    while batch := queue.take(1e9):
        batches.append(batch)

    taken = [pending for batch in batches for pending in batch]
    assert sorted(map(id, taken)) == sorted(map(id, pendings))
    assert len(queue) == 0
    for batch in batches:
        assert sum(pending.weight for pending in batch) <= limit
        assert len({pending.key for pending in batch}) == 1
    for key in {pending.key for pending in pendings}:
        assert [p for p in taken if p.key == key] == [p for p in pendings if p.key == key]
    loop.close()


@pytest.mark.parametrize(
    ("sizes", "options", "batches"),
    [
        ([1, 1, 1], {"max_batch_size": 8}, [[1, 1, 1]]),
        ([10, 7], {"max_batch_size": 16}, [[10], [7]]),
        ([3, 3, 3], {"max_batch_size": 6}, [[3, 3], [3]]),
        ([1, 2, 3], {"max_batch_size": 0}, [[1], [2], [3]]),
        ([1, 1, 1, 1, 1], {"max_batch_size": 8, "preferred_batch_sizes": (2, 4)}, [[1, 1, 1, 1], [1]]),
        ([1, 1, 1], {"max_batch_size": 8, "preferred_batch_sizes": (2, 4)}, [[1, 1], [1]]),
        ([3, 3], {"max_batch_size": 8, "preferred_batch_sizes": (4,)}, [[3, 3]]),
        ([0, 0, 0], {"max_batch_size": 2}, [[0, 0], [0]]),
    ],
)
def test_without_a_delay_what_is_there_is_sent(loop, sizes, options, batches):
    queue = queue_of([request(loop, rows) for rows in sizes], **options)

    assert [[p.rows for p in queue.take(0.0)] for _ in batches] == batches
    assert queue.take(0.0) == []


def test_a_batch_waits_for_the_delay_unless_it_is_full(loop):
    queue = queue_of([request(loop, at=1.0), request(loop, at=1.5)], max_batch_size=3, max_queue_delay=1.0)

    assert queue.take(1.9) == []
    assert queue.next_due(1.9) == 2.0
    assert len(queue.take(2.0)) == 2

    for at in (3.0, 3.1, 3.2):
        queue.put(request(loop, at=at))
    assert queue.next_due(3.2) == -math.inf
    assert len(queue.take(3.2)) == 3


def test_a_preferred_size_is_sent_before_the_delay_and_everything_after_it(loop):
    options = {"max_batch_size": 8, "max_queue_delay": 1.0, "preferred_batch_sizes": (2, 6)}
    early, late = (queue_of([request(loop) for _ in range(3)], **options) for _ in range(2))

    assert len(early.take(0.5)) == 2
    assert len(late.take(1.0)) == 3


def test_hurry_waits_for_nothing(loop):
    queue = queue_of([request(loop)], max_queue_delay=1.0)

    assert queue.take(0.0) == []
    assert len(queue.take(0.0, hurry=True)) == 1


def test_other_shapes_neither_block_nor_starve(loop):
    widths = [3, 5, 3, 5, 3]
    queue = queue_of([request(loop, width=width, at=at) for at, width in enumerate(widths)])

    first, second = queue.take(9.0), queue.take(9.0)

    assert [p.enqueued for p in first] == [0, 2, 4]
    assert [p.enqueued for p in second] == [1, 3]


def test_the_oldest_line_goes_first_whatever_flows_in(loop):
    queue = queue_of([request(loop, width=5, at=0.5)], max_batch_size=2)
    for at in (0.0, 1.0, 2.0, 3.0, 4.0):
        queue.put(request(loop, width=3, at=at))

    widths = [queue.take(9.0)[0].feed["x"].shape[1] for _ in range(4)]

    assert widths == [3, 5, 3, 3]


def test_types_and_names_are_not_mixed(loop):
    feed = {"z": np.zeros((1, 3), np.float32)}
    renamed = Pending(feed, 1, batch_key(feed, 1), 0.0, loop.create_future())
    queue = queue_of([request(loop), request(loop, dtype=np.float64), request(loop, dtype=">f4"), renamed])

    assert [len(queue.take(0.0)) for _ in range(5)] == [1, 1, 1, 1, 0]


def test_abandoned_requests_are_skipped_and_can_be_discarded(loop):
    gone, kept = request(loop), request(loop)
    queue = queue_of([gone, kept])
    gone.future.cancel()

    assert queue.take(0.0) == [kept]
    assert len(queue) == 1
    assert queue.next_due(0.0) == math.inf

    queue.discard(gone)
    queue.discard(gone)
    assert len(queue) == 0


def test_a_full_queue_refuses_and_recovers(loop):
    queue = queue_of([request(loop), request(loop)], level=LevelOptions(max_queue_size=2))

    with pytest.raises(QueueFull, match="2 requests wait"):
        queue.put(request(loop))

    queue.take(0.0)
    queue.put(request(loop))


@pytest.mark.parametrize("array", [np.zeros((2, 3)), np.zeros(())])
def test_rows_that_disagree_are_refused(array):
    with pytest.raises(InvalidArgument, match=r"input 'b' has shape .*, expected 3 rows"):
        batch_key({"a": np.zeros((3, 3)), "b": array}, 3)


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ({"max_batch_size": -1}, "max_batch_size is -1"),
        ({"max_queue_delay": math.nan}, "max_queue_delay is nan"),
        ({"max_batch_size": 4, "preferred_batch_sizes": (8,)}, "preferred batch size 8 is not in 1..4"),
        ({"max_batch_size": 4, "preferred_batch_sizes": (0,)}, "preferred batch size 0 is not in 1..4"),
    ],
)
def test_impossible_options_are_refused(options, fault):
    with pytest.raises(ConfigError, match=fault):
        BatchingOptions(**options)


def test_the_least_urgent_is_served_at_a_bounded_rate_whatever_flows_in(loop):
    queue = Queue(BatchingOptions(max_batch_size=1, priority_levels=2))
    low = [request(loop, at=0.5) for _ in range(3)]
    for pending in low:
        pending.level = 2
        queue.put(pending)

    taken = []
    for at in range(1, 3 * FAIR_TURN + 1):
        queue.put(request(loop, at=float(at)))
        taken += queue.take(float(at))

    assert [index for index, pending in enumerate(taken) if pending in low] == [15, 31, 47]
