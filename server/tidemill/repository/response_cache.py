"""Answers kept for requests that come again: in this process, least recently used given up first; knows no model.

What is kept is copied when it comes in and cannot be written to afterwards, so that no caller can change what the next
one gets.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Protocol, TypeAlias

import numpy as np

from tidemill.protocol.types import Array

__all__ = ["LocalCache", "Note", "Outputs", "ResponseCache", "Run"]

Outputs: TypeAlias = Mapping[str, Array]
Run: TypeAlias = Callable[[], "asyncio.Future[Outputs]"]
"""Has the model run."""
Note: TypeAlias = Callable[[bool, float], None]
"""Told whether an answer was found, and how many seconds the cache took."""

_ENTRY_BYTES = 512
"""What an entry takes beside its numbers."""


class ResponseCache(Protocol):
    """Answers by key."""

    def answer(self, key: bytes, run: Run, note: Note) -> asyncio.Future[Outputs]:
        """The answer that is kept, or that of a run, which is kept if it does not fail.

        Args:
            key: What the answer follows from.
            run: Called if nothing is kept; what it raises is raised.
            note: Told how it went.
        """

    async def close(self) -> None:
        """Let go of what the cache holds."""


class LocalCache:
    """A cache in this process's memory; belongs to one event loop.

    Attributes:
        used: Bytes that it takes now.
    """

    def __init__(self, limit: int, clock: Callable[[], float] = time.perf_counter) -> None:
        """Begin empty.

        Args:
            limit: Bytes that it may take.
            clock: Seconds.
        """
        self.used = 0
        self._limit = limit
        self._clock = clock
        self._kept: OrderedDict[bytes, tuple[Outputs, int]] = OrderedDict()

    def answer(self, key: bytes, run: Run, note: Note) -> asyncio.Future[Outputs]:
        """See `ResponseCache.answer`."""
        began = self._clock()
        found = self._kept.get(key)
        seconds = self._clock() - began
        if found is None:
            outputs = run()
            outputs.add_done_callback(lambda done: self._keep(key, done, seconds, note))
            return outputs
        self._kept.move_to_end(key)
        known: asyncio.Future[Outputs] = asyncio.get_running_loop().create_future()
        known.set_result(found[0])
        note(True, seconds)
        return known

    async def close(self) -> None:
        """See `ResponseCache.close`."""
        self._kept.clear()
        self.used = 0

    def _keep(self, key: bytes, done: asyncio.Future[Outputs], seconds: float, note: Note) -> None:
        began = self._clock()
        if not done.cancelled() and done.exception() is None:
            self._put(key, done.result())
        note(False, seconds + self._clock() - began)

    def _put(self, key: bytes, outputs: Outputs) -> None:
        size = _ENTRY_BYTES + sum(_size(array) for array in outputs.values())
        if size > self._limit or key in self._kept:
            return
        self._kept[key] = {name: _frozen(array) for name, array in outputs.items()}, size
        self.used += size
        while self.used > self._limit:
            self.used -= self._kept.popitem(last=False)[1][1]


def _size(array: Array) -> int:
    return array.nbytes + (sum(map(len, array.flat)) if array.dtype == np.object_ else 0)


def _frozen(array: Array) -> Array:
    kept = array.copy()
    kept.flags.writeable = False
    return kept
