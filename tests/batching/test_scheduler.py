"""The pure scheduler under any sequence of arrivals, departures and passing time."""

from __future__ import annotations

import asyncio

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tidemill.batching.cost import CostTable
from tidemill.batching.cost_policy import CostPolicy
from tidemill.batching.options import BatchingOptions, LevelOptions
from tidemill.batching.pending import Pending, batch_key
from tidemill.batching.policy import FixedPolicy, buckets, little_padding
from tidemill.batching.queue import FAIR_TURN, Queue
from tidemill.errors import QueueFull

LIMIT = 6
LEVELS = 3
ROOM = 8
VARYING = {"x": (1,)}
TABLE = CostTable({(1, 1): 1.0, (LIMIT, 1): 2.0, (1, 4): 2.0, (LIMIT, 4): 13.0})


def policies(options):
    return [
        FixedPolicy(options),
        FixedPolicy(options, buckets((2,))),
        FixedPolicy(options, little_padding(0.3)),
        CostPolicy(TABLE, options),
    ]


class Scheduling(RuleBasedStateMachine):
    """A queue of three priority levels, the second of which lets the late stand back; the others fail them."""

    @initialize(
        policy=st.integers(0, 3), delay=st.sampled_from([0.0, 2.0]), preferred=st.sampled_from([(), (2,), (2, 4)])
    )
    def begin(self, policy, delay, preferred):
        options = BatchingOptions(
            max_batch_size=LIMIT,
            max_queue_delay=delay,
            preferred_batch_sizes=preferred,
            priority_levels=LEVELS,
            level=LevelOptions(max_queue_size=ROOM, timeout=20.0),
            levels={2: LevelOptions(max_queue_size=ROOM, timeout=5.0, delays=True)},
        )
        self.loop = asyncio.new_event_loop()
        self.options, self.now, self.turns = options, 0.0, 0
        self.queue = Queue(options, policies(options)[policy])
        self.waiting: list[Pending] = []
        self.behind: dict[Pending, int] = {}

    @rule(rows=st.integers(0, LIMIT), length=st.integers(1, 4), level=st.integers(1, LEVELS), wide=st.integers(1, 2))
    def arrive(self, rows, length, level, wide):
        feed = {"x": np.zeros((rows, length, wide), np.float32)}
        pending = Pending(feed, rows, batch_key(feed, rows, VARYING), self.now, self.loop.create_future(), level)
        pending.length = length
        pending.expires = self.now + self.options.of_level(level).timeout
        full = sum(other.level == level for other in self.waiting) >= ROOM
        try:
            self.queue.put(pending)
        except QueueFull:
            assert full
        else:
            assert not full
            self.behind[pending] = len(self.waiting)
            self.waiting.append(pending)

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def leave(self, data):
        self._drop(data.draw(st.sampled_from(self.waiting)))

    @rule(seconds=st.floats(0.1, 4.0))
    def pass_time(self, seconds):
        self.now += seconds
        for pending in [p for p in self.waiting if p.expires <= self.now and not self._stands_back(p)]:
            self._drop(pending)

    @rule(hurry=st.booleans())
    def take(self, hurry):
        promised = self.queue.next_due(self.now)
        batch = self.queue.take(self.now, hurry=hurry)
        assert bool(batch) == (bool(self.waiting) if hurry else promised <= self.now)
        if not batch:
            return
        self._check_batch(batch)
        oldest = min(pending.enqueued for pending in self.waiting)
        if self.turns % FAIR_TURN == FAIR_TURN - 1 and not self.options.max_queue_delay:
            assert any(pending.enqueued == oldest for pending in batch)
        self.turns += 1
        for pending in batch:
            self.waiting.remove(pending)
        self._check_starvation()

    @invariant()
    def nobody_is_lost(self):
        if hasattr(self, "queue"):
            assert len(self.queue) == len(self.waiting)

    def teardown(self):
        if hasattr(self, "queue"):
            while batch := self.queue.take(self.now, hurry=True):
                for pending in batch:
                    self.waiting.remove(pending)
            assert self.waiting == []
            assert len(self.queue) == 0
            self.loop.close()

    def _check_batch(self, batch):
        assert len(set(batch)) == len(batch)
        assert set(batch) <= set(self.waiting)
        assert len({pending.key for pending in batch}) == 1
        assert len(batch) == 1 or sum(pending.weight for pending in batch) <= LIMIT
        for pending in batch:
            # Among requests that are alike, nobody is overtaken.
            assert not [p for p in self.waiting if p not in batch and _goes_before(p, pending)]

    def _check_starvation(self):
        if not self.options.max_queue_delay:
            for pending in self.waiting:
                self.behind[pending] += 1
                assert self.behind[pending] <= FAIR_TURN * (2 * LEVELS * ROOM + 1)

    def _stands_back(self, pending):
        return pending.delayed or self.options.of_level(pending.level).delays

    def _drop(self, pending):
        pending.future.cancel()
        self.queue.discard(pending)
        self.queue.discard(pending)
        self.waiting.remove(pending)


def _goes_before(one, other):
    alike = (one.key, one.length, one.weight, one.rank) == (other.key, other.length, other.weight, other.rank)
    return alike and one.enqueued < other.enqueued


TestScheduling = Scheduling.TestCase
TestScheduling.settings = settings(max_examples=150, stateful_step_count=60, deadline=None)
