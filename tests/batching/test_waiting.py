"""Priorities, timeouts, order and cancellation, on a real event loop with real threads."""

from __future__ import annotations

import asyncio
import threading

import numpy as np
import pytest

from tidemill.batching import Batcher, BatchingOptions, LevelOptions, Urgency
from tidemill.errors import ConfigError, DeadlineExceeded, InferenceFailed, InvalidArgument, QueueFull


class Gate:
    """Doubles x, one run after the other, each let through by hand; remembers the first value of every run."""

    def __init__(self):
        self.runs = []
        self.stopped = threading.Event()
        self.entered = threading.Semaphore(0)
        self.released = threading.Semaphore(0)

    def __call__(self, feed, cancel):
        cancel.attach(self._stop)
        self.entered.release()
        assert self.released.acquire(timeout=10)
        if self.stopped.is_set():
            raise RuntimeError("terminated")
        self.runs.append(float(feed["x"][0]))
        return {"y": feed["x"] * 2}

    def _stop(self):
        self.stopped.set()
        self.released.release()

    def open(self, times=100):
        for _ in range(times):
            self.released.release()

    async def wait_entered(self):
        assert await asyncio.get_running_loop().run_in_executor(None, lambda: self.entered.acquire(timeout=10))


@pytest.fixture
def gate():
    return Gate()


@pytest.fixture
def batchers():
    """Makes batchers that use threads, and closes them."""
    made = []

    def make(runner, **options):
        made.append(Batcher(runner, BatchingOptions(**{"max_batch_size": 1, "inline_below": 0.0, **options})))
        return made[-1]

    yield make
    for batcher in made:
        batcher.close()


def ask(batcher, value, deadline=None, **urgency):
    return batcher.submit({"x": np.full(1, value, np.float32)}, 1, deadline, Urgency(**urgency))


async def test_the_urgent_go_first_and_unknown_levels_mean_the_default(batchers, gate):
    batcher = batchers(gate, priority_levels=3, default_level=2)
    answers = [ask(batcher, 0)]
    await gate.wait_entered()

    answers += [ask(batcher, value, priority=p) for value, p in [(1, 3), (2, 0), (3, 7), (4, 1), (5, 2), (6, 1)]]
    gate.open()
    await asyncio.gather(*answers)

    assert gate.runs == [0, 4, 6, 2, 3, 5, 1]


async def test_each_level_has_room_of_its_own(batchers, gate):
    levels = {1: LevelOptions(max_queue_size=1), 2: LevelOptions(max_queue_size=2)}
    batcher = batchers(gate, priority_levels=2, levels=levels)
    answers = [ask(batcher, 0)]
    await gate.wait_entered()

    answers += [ask(batcher, 1, priority=1), ask(batcher, 2, priority=2), ask(batcher, 3, priority=2)]
    for priority in (1, 2):
        with pytest.raises(QueueFull, match=f"of priority {priority} wait"):
            ask(batcher, 4, priority=priority)
    gate.open()
    await asyncio.gather(*answers)


@pytest.mark.parametrize(
    ("level", "asked", "waits"),
    [
        ({"timeout": 0.03}, 0.0, 0.03),
        ({"timeout": 0.0}, 0.03, 0.03),
        ({"timeout": 60}, 0.03, 0.03),
        ({"timeout": 0.03}, 60.0, 0.03),
        ({"timeout": 0.03, "overridable": False}, 0.001, 0.03),
    ],
)
async def test_waiting_ends_on_time_while_the_instance_is_busy(batchers, gate, level, asked, waits):
    batcher = batchers(gate, priority_levels=2, levels={1: LevelOptions(**level)})
    loop = asyncio.get_running_loop()
    first = ask(batcher, 0, priority=2)
    await gate.wait_entered()

    start = loop.time()
    with pytest.raises(DeadlineExceeded):
        await ask(batcher, 1, timeout=asked)
    waited = loop.time() - start

    assert waits <= waited + 1e-3
    assert waited < waits + 0.25  # the run never ends by itself
    await asyncio.sleep(0)
    assert batcher.queued == 0
    gate.open()
    await first
    assert gate.runs == [0]


async def test_a_timeout_covers_waiting_and_not_the_run(batchers, gate):
    batcher = batchers(gate, level=LevelOptions(timeout=0.1))
    answer = ask(batcher, 1)
    await gate.wait_entered()

    done, _ = await asyncio.wait([answer], timeout=0.15)
    gate.open()

    assert not done
    assert (await answer)["y"] == 2


async def test_where_it_delays_the_late_stand_back(batchers, gate):
    batcher = batchers(gate, level=LevelOptions(timeout=0.2, delays=True))
    answers = [ask(batcher, 0)]
    await gate.wait_entered()
    answers += [ask(batcher, 1), ask(batcher, 2)]
    await asyncio.sleep(0.25)
    answers += [ask(batcher, 3)]

    gate.open(2)
    await gate.wait_entered()
    await gate.wait_entered()
    gate.open()
    await asyncio.gather(*answers)

    assert gate.runs == [0, 3, 1, 2]


async def test_answers_come_in_the_order_of_the_questions(batchers):
    gates = {value: threading.Event() for value in (0.0, 1.0)}
    entered = threading.Semaphore(0)

    def runner(feed, cancel):
        value = float(feed["x"][0])
        entered.release()
        assert gates.get(value, threading.Event()).wait(10) if value in gates else True
        return {"y": feed["x"]}

    batcher = batchers(runner, instances=2, preserve_ordering=True)
    seen = []
    answers = [ask(batcher, value) for value in range(4)]
    for value, answer in enumerate(answers):
        answer.add_done_callback(lambda _, value=value: seen.append(value))

    gates[1.0].set()
    answers[2].cancel()
    await asyncio.wait([answers[2]])
    await asyncio.get_running_loop().run_in_executor(None, lambda: [entered.acquire() for _ in range(3)])
    assert seen == [2]
    gates[0.0].set()
    await asyncio.gather(answers[0], answers[1], answers[3])

    assert seen == [2, 0, 1, 3]


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ({"priority_levels": 2}, "contradicts priority_levels"),
        ({"level": LevelOptions(timeout=1, delays=True)}, "contradicts a timeout that delays"),
    ],
)
def test_an_order_that_cannot_be_kept_is_refused(options, fault):
    with pytest.raises(ConfigError, match=fault):
        BatchingOptions(preserve_ordering=True, **options)


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ({"default_level": 2}, r"level 2 is not in 1\.\.1"),
        ({"priority_levels": 2, "levels": {3: LevelOptions()}}, r"level 3 is not in 1\.\.2"),
    ],
)
def test_levels_that_do_not_exist_are_refused(options, fault):
    with pytest.raises(ConfigError, match=fault):
        BatchingOptions(**options)


async def test_a_run_ends_when_all_its_callers_are_gone(batchers, gate):
    batcher = batchers(gate, max_batch_size=4)
    first, second = ask(batcher, 1), ask(batcher, 2, deadline=asyncio.get_running_loop().time() + 0.02)
    await gate.wait_entered()

    with pytest.raises(DeadlineExceeded):
        await second
    await asyncio.sleep(0)
    assert not gate.stopped.is_set()

    first.cancel()
    await batcher.drain()
    assert gate.stopped.is_set()
    assert gate.runs == []


async def test_a_large_request_is_run_in_parts(batchers):
    runs = []

    def runner(feed, cancel):
        runs.append(len(feed["x"]))
        return {"y": feed["x"] * 2}

    batcher = batchers(runner, max_batch_size=4, split_oversize=True, level=LevelOptions(max_queue_size=1))
    x = np.arange(11, dtype=np.float32)

    answer = await batcher.infer({"x": x}, 11)

    np.testing.assert_array_equal(answer["y"], x * 2)
    assert runs == [4, 4, 3]
    await batcher.drain()


async def test_a_large_request_is_run_in_few_parts_where_the_limit_is_only_for_joining(batchers):
    runs = []

    def runner(feed, cancel):
        runs.append(len(feed["x"]))
        return {"y": feed["x"] * 2}

    batcher = batchers(runner, max_batch_size=4, split_oversize=True, most_parts=2)
    for rows in (5, 100):
        x = np.arange(rows, dtype=np.float32)
        np.testing.assert_array_equal((await batcher.infer({"x": x}, rows))["y"], x * 2)
    assert runs == [4, 1, 50, 50]
    await batcher.drain()


async def test_if_one_part_fails_the_request_fails_and_the_rest_is_not_run(batchers):
    runs = []

    def runner(feed, cancel):
        runs.append(len(feed["x"]))
        if 5 in feed["x"]:
            raise InvalidArgument("five")
        return {"y": feed["x"]}

    batcher = batchers(runner, max_batch_size=2, split_oversize=True)

    with pytest.raises(InvalidArgument, match="five"):
        await batcher.infer({"x": np.arange(100)}, 100)
    await batcher.drain()

    assert len(runs) < 10


async def test_parts_with_other_rows_are_not_joined(batchers):
    batcher = batchers(lambda feed, _: {"mean": feed["x"].mean(keepdims=True)}, max_batch_size=2, split_oversize=True)

    with pytest.raises(InferenceFailed, match="'mean' has shape"):
        await batcher.infer({"x": np.arange(4.0)}, 4)


async def test_a_large_request_that_nobody_waits_for_leaves_the_queue(batchers, gate):
    batcher = batchers(gate, max_batch_size=2, split_oversize=True)
    answer = batcher.submit({"x": np.arange(20.0)}, 20)
    await gate.wait_entered()

    answer.cancel()
    await asyncio.wait([answer])
    await batcher.drain()

    assert batcher.queued == 0
    assert gate.runs == []
