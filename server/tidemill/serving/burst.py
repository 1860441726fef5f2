"""Requests that arrive in one turn of the event loop and differ in nothing but their numbers, answered in the next.

They are read, run and written as one, where nothing speaks against it: the model is ready, its runs are quick, nobody
waits for it. All others are given back to those who brought them, and take the way of single requests. Knows no wire.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple, Protocol, TypeAlias

from tidemill.batching.batcher import AtOnce, Batcher
from tidemill.errors import TidemillError
from tidemill.protocol.alike import Alike, Bodies
from tidemill.protocol.bounded import Bounded
from tidemill.protocol.types import InferResponse
from tidemill.repository.served import ServedModel
from tidemill.serving.metrics import OK, ModelMetrics
from tidemill.serving.seen import RequestSeen, Shape, shapes_of
from tidemill.serving.service import Service

__all__ = ["Burst", "Caller", "Kind", "Member"]

_HOLD_SECONDS = 1e-3
"""How long the loop may be held before it serves its sockets again; one run more than that at most."""


class Caller(Protocol):
    """Who brought a request."""

    @property
    def gone(self) -> bool:
        """Whether nobody waits for the answer any more."""

    def answer(self, data: bytes) -> None:
        """Send the answer."""

    def take_alone(self, message: bytes) -> None:
        """Have a request answered by itself."""


Member: TypeAlias = tuple[Caller, bytes]


class Kind(Protocol):
    """Requests of one wire that differ in nothing but their numbers.

    Attributes:
        protocol: How the wire is counted: "rest" or "grpc".
        alike: Reads and writes them.
        declined: Whether it turned out that they cannot be answered together.
    """

    protocol: str
    alike: Alike
    declined: bool

    def reply(self, callers: Sequence[Caller], bodies: Bodies, seconds: float) -> bool:
        """Answer each caller; False, and nobody is answered, if that needs more than writing."""


class _Way(NamedTuple):
    """How the requests of a kind are answered, as long as the model is the same.

    Attributes:
        served: The model.
        batcher: What runs it.
        rows: The rows of one request.
        values: The values of its inputs.
        room: How many requests one run takes.
        names: The outputs that they want.
        metrics: Where they are counted.
        shapes: The inputs of one request.
    """

    served: ServedModel
    batcher: Batcher
    rows: int
    values: int
    room: int
    names: Sequence[str]
    metrics: ModelMetrics
    shapes: tuple[Shape, ...]


class _Group(NamedTuple):
    """Requests of one kind, and when the first of them came."""

    kind: Kind
    since: float
    members: list[Member]


class Burst:
    """What has arrived in this turn of one event loop."""

    def __init__(self, service: Service, linger: int = 0) -> None:
        """Begin empty.

        Args:
            service: What answers.
            linger: For how many turns without an arrival others are waited for: for wires that bring what arrived at
                one time in several turns.
        """
        self._service = service
        self._linger = linger
        self._arrived = self._quiet = 0
        self._clock = service.admission.clock
        self._find = service.find
        self._arriving: dict[Kind, _Group] = {}
        self._waiting: deque[_Group] = deque()
        self._ways: Bounded[Kind, _Way] = Bounded()

    def add(self, kind: Kind, caller: Caller, message: bytes, *, alone: bool = False) -> None:
        """Take a request; it is answered or given back soon.

        Args:
            kind: Its kind.
            caller: Who brought it.
            message: Its bytes.
            alone: Whether nobody else could bring one in this turn, so that it need not be waited for.
        """
        if alone and not self._arriving and not self._waiting:
            self._answer(_Group(kind, self._clock(), [(caller, message)]))
            return
        self._arrived += 1
        group = self._arriving.get(kind)
        if group is not None:
            group.members.append((caller, message))
            return
        if not self._arriving and not self._waiting:
            asyncio.get_running_loop().call_soon(self._answer_all)
        self._arriving[kind] = _Group(kind, self._clock(), [(caller, message)])

    def _answer_all(self) -> None:
        self._quiet = 0 if self._arrived else self._quiet + 1
        self._arrived = 0
        if self._arriving and self._quiet < self._linger:
            asyncio.get_running_loop().call_soon(self._answer_all)
            return
        self._waiting.extend(self._arriving.values())
        self._arriving.clear()
        end = self._clock() + _HOLD_SECONDS
        while self._waiting:
            self._answer(self._waiting.popleft())
            if self._waiting and self._clock() > end:
                asyncio.get_running_loop().call_soon(self._answer_all)
                return

    def _answer(self, group: _Group) -> None:
        """Answer as many as one run takes; the others wait at the head of the line."""
        kind, since, members = group
        way = self._way(kind)
        if way is None:
            _give_back(members)
            return
        if len(members) > way.room:
            self._waiting.appendleft(_Group(kind, since, members[way.room :]))
            members = members[: way.room]
        here = [member for member in members if not member[0].gone]
        if here and not self._answer_together(_Group(kind, since, here), way):
            _give_back(here)

    def _way(self, kind: Kind) -> _Way | None:
        """None if the requests have to be started as others are, and something may have to be told of single ones."""
        if self._service.traces.active or self._service.admission.apart:
            return None
        request = kind.alike.request
        try:
            served = self._find(request.model_name, request.model_version)
            way = self._ways.get(kind)
            if way is None or way.served is not served:
                way = self._make_way(kind, served)
        except TidemillError:
            return None
        return way

    def _make_way(self, kind: Kind, served: ServedModel) -> _Way | None:
        request, running = kind.alike.request, served.direct
        if running is None:
            return None
        rows = running.rows(served.check(request.inputs))
        names = [output.name for output in request.outputs] or running.output_names
        metrics = self._service.metrics.model(served.name, served.version)
        values = sum(array.size for array in request.inputs.values())
        shapes = shapes_of(request.inputs)
        way = _Way(served, running.batcher, rows, values, running.room(rows), names, metrics, shapes)
        if way.room:
            self._ways.put(kind, way)
        return way if way.room else None

    def _answer_together(self, group: _Group, way: _Way) -> bool:
        """False, and nobody is answered, if each has to be answered by itself."""
        kind, since, members = group
        count = len(members)
        rows = way.rows * count
        pace = way.batcher.pace_at_once(way.values * count)
        if pace is None or not self._service.admission.has_room(count):
            return False
        began = self._clock()
        try:
            feed = kind.alike.read([message for _, message in members])
            if feed is None:
                return False
            run = way.batcher.run_at_once(feed, pace)
            bodies = _bodies(run, kind, way, count)
        except Exception:  # whoever is to blame is told so when it is run by itself
            return False
        seconds = self._clock() - since
        if bodies is None or not kind.reply([caller for caller, _ in members], bodies, seconds):
            kind.declined = True
            return False
        # The answers are on their way: what is counted now keeps nobody waiting.
        way.batcher.note(run, rows, (began - since,) * count)
        way.metrics.on_requests(kind.protocol, seconds, count)
        if recorder := self._service.recorder:
            model = way.served
            seen = RequestSeen(model.name, model.version, kind.protocol, {}, since, seconds, OK, shapes=way.shapes)
            recorder.on_burst(seen, run.seconds, rows, count)
        return True


def _bodies(run: AtOnce, kind: Kind, way: _Way, count: int) -> Bodies | None:
    chosen = {name: run.outputs[name] for name in way.names}
    if count > 1:
        for array in chosen.values():
            if array.shape[:1] != (way.rows * count,):
                return None
    return kind.alike.write(InferResponse(way.served.name, way.served.version, chosen), count)


def _give_back(members: Sequence[Member]) -> None:
    for caller, message in members:
        if not caller.gone:
            caller.take_alone(message)
