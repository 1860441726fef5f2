"""The batcher's promises, on a real event loop with real threads."""

from __future__ import annotations

import asyncio
import math
import threading

import numpy as np
import pytest

from tidemill.batching import Batcher, BatchingOptions, LevelOptions
from tidemill.errors import (
    DeadlineExceeded,
    InferenceFailed,
    InvalidArgument,
    QueueFull,
    ShuttingDown,
    Unavailable,
    UnprocessableInput,
)

ON_THREADS = 0.0
INLINE = math.inf
EVERYWHERE = pytest.mark.parametrize("inline_below", [ON_THREADS, INLINE])


class Doubler:
    """Doubles x, refuses negative rows, remembers the row count of every run."""

    def __init__(self):
        self.runs = []

    def __call__(self, feed, cancel=None):
        self.runs.append(len(feed["x"]))
        if (feed["x"] < 0).any():
            raise UnprocessableInput("negative")
        return {"y": feed["x"] * 2}


class Gate(Doubler):
    """A Doubler whose runs wait until the gate is opened."""

    def __init__(self):
        super().__init__()
        self.entered = threading.Semaphore(0)
        self.opened = threading.Event()

    def __call__(self, feed, cancel=None):
        self.entered.release()
        assert self.opened.wait(10)
        return super().__call__(feed)

    async def wait_entered(self):
        await asyncio.get_running_loop().run_in_executor(None, lambda: self.entered.acquire(timeout=10))


@pytest.fixture
def batchers():
    """Makes batchers and closes them."""
    made = []

    def make(runner, *, observer=None, policy=None, **options):
        made.append(Batcher(runner, BatchingOptions(**options), policy=policy, observer=observer))
        return made[-1]

    yield make
    for batcher in made:
        batcher.close()


def rows_of(*values):
    return {"x": np.array(values, np.float32)}


@EVERYWHERE
async def test_requests_of_one_turn_share_a_run(batchers, inline_below):
    runner = Doubler()
    batcher = batchers(runner, inline_below=inline_below)

    answers = await asyncio.gather(*(batcher.infer(rows_of(*range(n)), n) for n in range(1, 6)))

    assert runner.runs == [15]
    for n, answer in enumerate(answers, 1):
        np.testing.assert_array_equal(answer["y"], np.arange(n) * 2)


@EVERYWHERE
async def test_one_bad_request_fails_alone(batchers, inline_below):
    runner, records = Doubler(), []
    batcher = batchers(runner, max_batch_size=8, inline_below=inline_below, observer=records.append)

    answers = await asyncio.gather(
        *(batcher.infer(rows_of(-1 if n == 5 else n), 1) for n in range(8)), return_exceptions=True
    )

    assert isinstance(answers.pop(5), UnprocessableInput)
    assert [float(answer["y"][0]) for answer in answers] == [0, 2, 4, 6, 8, 12, 14]
    assert runner.runs == [8, 4, 4, 2, 1, 1, 2]
    assert [(record.rows, record.requests, record.failures) for record in records] == [(8, 8, 1)]

    assert (await batcher.infer(rows_of(7), 1))["y"] == 14


async def test_if_all_are_bad_all_fail_within_bounds(batchers):
    runner = Doubler()
    batcher = batchers(runner)

    answers = await asyncio.gather(*(batcher.infer(rows_of(-1), 1) for _ in range(8)), return_exceptions=True)

    assert all(isinstance(answer, UnprocessableInput) for answer in answers)
    assert len(runner.runs) == 2 * 8 - 1


async def test_what_is_away_is_not_run_again(batchers):
    runs = []

    def away(feed, cancel):
        runs.append(len(feed["x"]))
        raise Unavailable("the model's process has ended")

    batcher = batchers(away, inline_below=ON_THREADS)
    answers = await asyncio.gather(*(batcher.infer(rows_of(n), 1) for n in range(4)), return_exceptions=True)

    assert {type(answer) for answer in answers} == {Unavailable}
    assert runs == [4]


async def test_a_model_that_mixes_rows_still_answers_each_request_alone(batchers):
    batcher = batchers(lambda feed, _: {"mean": feed["x"].mean(keepdims=True)})

    answers = await asyncio.gather(*(batcher.infer(rows_of(n, n + 1), 2) for n in range(3)))

    assert [float(answer["mean"][0]) for answer in answers] == [0.5, 1.5, 2.5]


async def test_foreign_exceptions_become_ours(batchers):
    def broken(feed, cancel):
        raise RuntimeError("device lost")

    with pytest.raises(InferenceFailed, match="RuntimeError: device lost") as caught:
        await batchers(broken).infer(rows_of(1), 1)
    assert isinstance(caught.value.__cause__, RuntimeError)


async def test_while_an_instance_is_busy_the_next_batch_gathers(batchers):
    gate = Gate()
    batcher = batchers(gate, max_batch_size=4)
    answers = [asyncio.ensure_future(batcher.infer(rows_of(0), 1))]
    await gate.wait_entered()

    answers += [asyncio.ensure_future(batcher.infer(rows_of(n), 1)) for n in range(6)]
    await asyncio.sleep(0)
    assert batcher.queued == 6
    gate.opened.set()
    await asyncio.gather(*answers)

    assert gate.runs == [1, 4, 2]


async def test_idle_instances_run_at_once(batchers):
    gate = Gate()
    batcher = batchers(gate, instances=2)
    answers = []
    for n in range(2):
        answers.append(asyncio.ensure_future(batcher.infer(rows_of(n), 1)))
        await gate.wait_entered()

    gate.opened.set()
    assert [float(answer["y"][0]) for answer in await asyncio.gather(*answers)] == [0, 2]


async def test_the_queue_delay_gathers_and_ends(batchers):
    runner = Doubler()
    batcher = batchers(runner, max_batch_size=2, max_queue_delay=0.05)
    loop = asyncio.get_running_loop()

    start = loop.time()
    await batcher.infer(rows_of(1), 1)
    waited = loop.time() - start
    first = asyncio.ensure_future(batcher.infer(rows_of(1), 1))
    await asyncio.sleep(0)
    await asyncio.gather(first, batcher.infer(rows_of(2), 1))

    assert waited >= 0.05
    assert runner.runs == [1, 2]


async def test_shapes_that_cannot_be_joined_all_get_answers(batchers):
    runner = Doubler()
    batcher = batchers(runner)
    widths = [3, 5, 3, 5]

    answers = await asyncio.gather(*(batcher.infer({"x": np.full((2, width), width)}, 2) for width in widths))

    assert [answer["y"].tolist() for answer in answers] == [[[width * 2] * width] * 2 for width in widths]
    assert runner.runs == [4, 4]


async def test_a_deadline_fires_on_time_while_the_instance_is_busy(batchers):
    gate = Gate()
    batcher = batchers(gate, max_batch_size=1)
    loop = asyncio.get_running_loop()
    first = asyncio.ensure_future(batcher.infer(rows_of(1), 1))
    await gate.wait_entered()

    with pytest.raises(DeadlineExceeded):
        await batcher.infer(rows_of(2), 1, deadline=loop.time() + 0.02)
    await asyncio.sleep(0)

    assert batcher.queued == 0
    assert not first.done()
    gate.opened.set()
    await first
    await batcher.drain()
    assert gate.runs == [1]


async def test_a_deadline_also_ends_waiting_for_a_run(batchers):
    gate = Gate()
    batcher = batchers(gate)

    with pytest.raises(DeadlineExceeded):
        await batcher.infer(rows_of(1), 1, deadline=asyncio.get_running_loop().time() + 0.02)
    gate.opened.set()
    await batcher.drain()


async def test_a_deadline_in_the_past_never_queues(batchers):
    batcher = batchers(Doubler())

    with pytest.raises(DeadlineExceeded, match="had passed"):
        await batcher.infer(rows_of(1), 1, deadline=0.0)


async def test_cancelled_requests_leave_at_once_and_are_not_run(batchers):
    gate = Gate()
    batcher = batchers(gate, max_batch_size=1, level=LevelOptions(max_queue_size=20))
    first = asyncio.ensure_future(batcher.infer(rows_of(0), 1))
    await gate.wait_entered()
    waiting = [asyncio.ensure_future(batcher.infer(rows_of(n), 1)) for n in range(20)]
    await asyncio.sleep(0)
    with pytest.raises(QueueFull):
        await batcher.infer(rows_of(1), 1)

    for task in waiting[:19]:
        task.cancel()
    await asyncio.wait(waiting[:19])

    assert batcher.queued == 1
    gate.opened.set()
    assert (await waiting[19])["y"] == 38
    await first
    assert gate.runs == [1, 1]


async def test_drain_answers_what_was_taken_and_refuses_the_rest(batchers):
    runner = Doubler()
    batcher = batchers(runner, max_queue_delay=60)
    taken = [asyncio.ensure_future(batcher.infer(rows_of(n), 1)) for n in range(3)]
    await asyncio.sleep(0)

    await batcher.drain()

    assert [float((await task)["y"][0]) for task in taken] == [0, 2, 4]
    with pytest.raises(ShuttingDown):
        await batcher.infer(rows_of(1), 1)


async def test_close_fails_what_waits(batchers):
    batcher = batchers(Doubler(), max_queue_delay=60)
    waiting = asyncio.ensure_future(batcher.infer(rows_of(1), 1))
    await asyncio.sleep(0)

    batcher.close()

    with pytest.raises(ShuttingDown):
        await waiting


async def test_more_rows_than_a_batch_holds_are_refused(batchers):
    with pytest.raises(InvalidArgument, match="has 5 rows, the model takes at most 4"):
        await batchers(Doubler(), max_batch_size=4).infer(rows_of(*range(5)), 5)


async def test_without_batching_any_shape_runs_alone(batchers):
    runner = Doubler()
    batcher = batchers(lambda feed, _: runner({"x": feed["x"].reshape(-1)}), max_batch_size=0)

    answers = await asyncio.gather(*(batcher.infer({"x": np.float32(n).reshape(())}, 1) for n in range(3)))

    assert [float(answer["y"][0]) for answer in answers] == [0, 2, 4]
    assert runner.runs == [1, 1, 1]


@pytest.mark.parametrize(("inline_below", "here"), [(ON_THREADS, False), (INLINE, True)])
async def test_quick_runs_are_made_on_the_loop(batchers, inline_below, here):
    threads = []

    def runner(feed, cancel):
        threads.append(threading.current_thread())
        return feed

    batcher = batchers(runner, inline_below=inline_below)
    for _ in range(3):
        await batcher.infer(rows_of(1), 1)

    assert [thread is threading.current_thread() for thread in threads] == [here] * 3


@EVERYWHERE
async def test_a_storm_of_mixed_requests_loses_and_mixes_nothing(batchers, inline_below):
    rng = np.random.default_rng(0)
    batcher = batchers(Doubler(), instances=2, max_batch_size=6, inline_below=inline_below)

    async def caller(number):
        for turn in range(20):
            rows, width = rng.integers(1, 5), rng.integers(1, 4)
            feed = {"x": np.full((rows, width), 100 * number + turn, np.float32)}
            answer = await batcher.infer(feed, int(rows))
            np.testing.assert_array_equal(answer["y"], feed["x"] * 2)

    await asyncio.gather(*(caller(number) for number in range(20)))
    assert batcher.queued == 0
