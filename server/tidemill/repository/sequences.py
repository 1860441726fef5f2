"""The sequences that go on at a model: begun, found again, forgotten after a while; knows no tensors and no runs.

A sequence takes a place from its start to its end. Those that start while all places are taken wait for one, or are
refused. Belongs to one event loop.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeAlias

from tidemill.batching.urgency import Urgency
from tidemill.errors import InvalidArgument, QueueFull
from tidemill.protocol.types import Array

__all__ = ["Id", "Limits", "Sequence", "Sequences", "Step"]

Id: TypeAlias = int | str


@dataclass(slots=True, eq=False)
class Step:
    """One request of a sequence; equal only to itself.

    Attributes:
        feed: What it brings, by input name.
        starts: Whether it is the first.
        ends: Whether it is the last.
        deadline: When its answer stops being wanted.
        urgency: What it asks of the queue.
        spoiled: Whether one before it failed, so that it would be run on a state that it was not meant for.
    """

    feed: Mapping[str, Array]
    starts: bool
    ends: bool
    deadline: float | None
    urgency: Urgency | None
    spoiled: bool = False


@dataclass(slots=True, eq=False)
class Sequence:
    """One sequence; equal only to itself.

    Attributes:
        id: The caller's name for it.
        place: Done once it has its place.
        state: What the next request takes up, by input name.
        turn: Held by the request that is being run.
        steps: Requests that were taken and are not answered, in their order.
        used: When one was answered last.
        ended: Why no further request of it is taken; "" if one is.
    """

    id: Id
    place: asyncio.Future[None]
    used: float
    state: Mapping[str, Array] = field(default_factory=dict)
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    steps: list[Step] = field(default_factory=list)
    ended: str = ""

    def take(self, step: Step) -> None:
        """Take a request."""
        self.steps.append(step)
        if step.ends:
            self.ended = "has ended"

    def fail(self, step: Step) -> None:
        """Go on as if a request had not been sent; those that wait behind it cannot be run."""
        if step.ends:
            self.ended = ""
        if step.spoiled:  # what came after the one that failed first was sent anew
            return
        for later in self.steps[self.steps.index(step) + 1 :]:
            later.spoiled = True


@dataclass(frozen=True, slots=True)
class Limits:
    """How many sequences may go on, how many more may wait for that, and the seconds after which one is forgotten."""

    places: int
    waiting: int
    idle_seconds: float


class Sequences:
    """All that were begun and neither ended nor forgotten."""

    def __init__(self, limits: Limits, clock: Callable[[], float], on_gone: Callable[[Id], None]) -> None:
        """Begin without any.

        Args:
            limits: How many there may be.
            clock: Seconds.
            on_gone: Told the id of each that has ended or was forgotten.
        """
        self._limits = limits
        self._clock = clock
        self._on_gone = on_gone
        self._known: dict[Id, Sequence] = {}  # the one that was used longest ago comes first
        self._free = limits.places
        self._line: deque[Sequence] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._changed = asyncio.Event()

    def begin(self, name: Id, state: Mapping[str, Array]) -> Sequence:
        """Start a sequence; one of the same name that goes on ends here, and what it had taken is still answered.

        Raises:
            QueueFull: Too many go on, and too many wait.
        """
        self.forget_idle()
        if (before := self._known.get(name)) is not None:
            self.end(before)
        if not self._free and len(self._line) >= self._limits.waiting:
            raise QueueFull(
                f"{self._limits.places} sequences go on and {len(self._line)} wait, which is as many as the model "
                f"takes; sequence {name!r} can start when one has ended or was idle for {self._limits.idle_seconds:g} s"
            )
        place = asyncio.get_running_loop().create_future()
        sequence = self._known[name] = Sequence(name, place, self._clock(), state)
        self._line.append(sequence)
        self._give_places()
        self._watch()
        return sequence

    def find(self, name: Id) -> Sequence:
        """A sequence that goes on.

        Raises:
            InvalidArgument: It was never begun, has ended, or was forgotten.
        """
        self.forget_idle()
        sequence = self._known.get(name)
        if sequence is None:
            raise InvalidArgument(
                f"there is no sequence {name!r}: it was not begun, has ended, or was idle for more than "
                f"{self._limits.idle_seconds:g} s; its first request needs sequence_start: true"
            )
        if sequence.ended:
            raise InvalidArgument(f"sequence {name!r} {sequence.ended}; a new one needs sequence_start: true")
        return sequence

    @contextmanager
    def in_use(self, sequence: Sequence, step: Step) -> Iterator[None]:
        """While a request of the sequence is here, it is not idle."""
        try:
            yield
        finally:
            sequence.steps.remove(step)
            sequence.used = self._clock()
            if self._known.get(sequence.id) is sequence:
                self._known[sequence.id] = self._known.pop(sequence.id)
            self._changed.set()

    def end(self, sequence: Sequence) -> None:
        """Forget a sequence and give its place to the next."""
        if self._known.get(sequence.id) is not sequence:
            return
        del self._known[sequence.id]
        sequence.ended = sequence.ended or "has ended"
        if sequence.place.done():
            self._free += 1
        else:
            self._line.remove(sequence)
            sequence.place.set_result(None)  # so that nobody waits for it any longer
        self._on_gone(sequence.id)
        self._give_places()
        self._changed.set()

    def forget(self, name: Id) -> None:
        """End the sequence of this name, if it goes on here."""
        if sequence := self._known.get(name):
            self.end(sequence)

    def forget_idle(self) -> None:
        """Forget those that nobody has asked for in a long time."""
        limit = self._clock() - self._limits.idle_seconds
        idle = []
        for sequence in self._known.values():
            if sequence.used > limit and not sequence.steps:
                break
            if not sequence.steps:
                idle.append(sequence)
        for sequence in idle:
            self.end(sequence)

    async def until_all_ended(self) -> None:
        """Return when none goes on any more."""
        while self._known:
            self._changed.clear()
            await self._changed.wait()

    async def until_answered(self) -> None:
        """Return when every request that was taken is answered."""
        while any(sequence.steps for sequence in self._known.values()):
            self._changed.clear()
            await self._changed.wait()

    def close(self) -> None:
        """Forget all."""
        for sequence in list(self._known.values()):
            self.end(sequence)
        if self._timer:
            self._timer.cancel()

    def _give_places(self) -> None:
        while self._free and self._line:
            self._free -= 1
            self._line.popleft().place.set_result(None)

    def _watch(self) -> None:
        """Look for idle sequences even if nobody starts or continues one."""
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._limits.idle_seconds, self._look)

    def _look(self) -> None:
        self._timer = None
        self.forget_idle()
        if self._known:
            self._watch()
