"""Waiting ends exactly when it should, on an event loop whose time passes only while nothing is to be done."""

from __future__ import annotations

import asyncio
import selectors
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tidemill.batching import Batcher, BatchingOptions, LevelOptions, Urgency
from tidemill.errors import DeadlineExceeded


class _Selector(selectors.DefaultSelector):
    """Lets time pass instead of waiting; waits only if no timer is set."""

    now = 0.0

    def select(self, timeout: float | None = None) -> Any:
        ready = super().select(0 if timeout else timeout)
        if timeout and not ready:
            self.now += timeout
        return ready


class _Loop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._watch = _Selector()
        super().__init__(self._watch)

    def time(self) -> float:
        return self._watch.now


def on_own_time(body: Callable[[], Any]) -> Any:
    with asyncio.Runner(loop_factory=_Loop) as runner:
        return runner.run(body())


@pytest.mark.parametrize(
    ("level", "asked", "deadline", "expected"),
    [
        (0.0, 0.005, None, 0.005),
        (0.2, 0.0, None, 0.2),
        (0.2, 0.05, None, 0.05),
        (3600.0, 0.0, None, 3600.0),
        (0.0, 0.0, 0.01, 0.01),
        (0.2, 0.1, 0.05, 0.05),
    ],
)
def test_who_waits_is_told_at_the_moment(level: float, asked: float, deadline: float | None, expected: float) -> None:
    free = threading.Event()

    def run(feed: Any, _: Any) -> Any:
        free.wait(20)
        return feed

    async def body() -> float:
        loop = asyncio.get_running_loop()
        options = BatchingOptions(max_batch_size=0, inline_below=0.0, level=LevelOptions(timeout=level))
        batcher = Batcher(run, options, clock=loop.time)
        running = asyncio.ensure_future(batcher.infer({"x": np.zeros(1)}, 1))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        begun = loop.time()
        urgency = Urgency(timeout=asked) if asked else None
        with pytest.raises(DeadlineExceeded):
            await batcher.infer({"x": np.zeros(1)}, 1, begun + deadline if deadline else None, urgency)
        waited = loop.time() - begun
        assert batcher.queued == 0
        free.set()
        await running
        batcher.close()
        return waited

    assert on_own_time(body) == pytest.approx(expected, abs=1e-6)


def test_a_batch_leaves_when_its_delay_is_over() -> None:
    async def body() -> list[tuple[float, int]]:
        loop = asyncio.get_running_loop()
        left: list[tuple[float, int]] = []

        def run(feed: Any, _: Any) -> Any:
            left.append((loop.time(), len(feed["x"])))
            return feed

        options = BatchingOptions(max_batch_size=4, max_queue_delay=0.01, inline_below=float("inf"))
        batcher = Batcher(run, options, clock=loop.time)
        answers = []
        for pause in (0.0, 0.004, 0.008, 0.0):  # the third comes when the first two have left
            await asyncio.sleep(pause)
            answers.append(asyncio.ensure_future(batcher.infer({"x": np.zeros(1)}, 1)))
        await asyncio.gather(*answers)
        batcher.close()
        return left

    assert on_own_time(body) == [(pytest.approx(0.01), 2), (pytest.approx(0.022), 2)]
