"""Requests that arrive in one turn of the event loop and differ in nothing but their numbers, answered in the next.

They are read, run and written as one, where nothing speaks against it: the model is ready, its runs are quick, nobody
waits for it. All others are given back to those who brought them, and take the way of single requests. Knows no wire.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple, Protocol, TypeAlias

from tidemill.errors import TidemillError
from tidemill.protocol.alike import Alike, Bodies
from tidemill.protocol.types import Array, InferResponse
from tidemill.repository.running import RunningModel
from tidemill.repository.served import ServedModel
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


class _Group(NamedTuple):
    """Requests of one kind, and when the first of them came."""

    kind: Kind
    since: float
    members: list[Member]


class Burst:
    """What has arrived in this turn of one event loop."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._clock = service.admission.clock
        self._arriving: dict[Kind, _Group] = {}
        self._waiting: deque[_Group] = deque()

    def add(self, kind: Kind, caller: Caller, message: bytes) -> None:
        """Take a request; it is answered or given back soon."""
        group = self._arriving.get(kind)
        if group is not None:
            group.members.append((caller, message))
            return
        if not self._arriving and not self._waiting:
            asyncio.get_running_loop().call_soon(self._answer_all)
        self._arriving[kind] = _Group(kind, self._clock(), [(caller, message)])

    def _answer_all(self) -> None:
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
        served = self._served(kind)
        running = served.quick if served else None
        rows = _rows(kind, served, running) if served and running else 0
        room = running.room(rows) if rows and running else 0
        if not (served and running and room):
            _give_back(members)
            return
        if members[room:]:
            self._waiting.appendleft(_Group(kind, since, members[room:]))
        here = [member for member in members[:room] if not member[0].gone]
        if here and not self._answer_together(_Group(kind, since, here), served, running, rows):
            _give_back(here)

    def _served(self, kind: Kind) -> ServedModel | None:
        """The model, if it and the server take requests and nothing is to be recorded of single ones."""
        if self._service.admission.refusing or self._service.traces.active:
            return None
        try:
            return self._service.find(kind.alike.request.model_name, kind.alike.request.model_version)
        except TidemillError:
            return None

    def _answer_together(self, group: _Group, served: ServedModel, running: RunningModel, rows: int) -> bool:
        kind, since, members = group
        count = len(members)
        if not self._service.admission.has_room(count):
            return False
        try:
            bodies = self._bodies(group, served, running, rows)
        except Exception:  # whoever is to blame is told so when it is run by itself
            return False
        seconds = self._clock() - since
        if bodies is None or not kind.reply([caller for caller, _ in members], bodies, seconds):
            kind.declined = True
            return False
        self._service.metrics.model(served.name, served.version).on_requests(kind.protocol, seconds, count)
        return True

    def _bodies(self, group: _Group, served: ServedModel, running: RunningModel, rows: int) -> Bodies | None:
        kind, since, members = group
        count = len(members)
        feed = kind.alike.read([message for _, message in members])
        if feed is None:
            raise ValueError("one of them has to be read by itself")
        outputs = running.run_at_once(feed, rows * count, [self._clock() - since] * count)
        names = [output.name for output in kind.alike.request.outputs] or running.output_names
        chosen = {name: outputs[name] for name in names}
        if count > 1 and not all(_has_rows(array, rows * count) for array in chosen.values()):
            return None
        return kind.alike.write(InferResponse(served.name, served.version, chosen), count)


def _give_back(members: Sequence[Member]) -> None:
    for caller, message in members:
        if not caller.gone:
            caller.take_alone(message)


def _rows(kind: Kind, served: ServedModel, running: RunningModel) -> int:
    """The rows of one request; 0 if it no longer fits the model."""
    try:
        return running.rows(served.check(kind.alike.request.inputs))
    except TidemillError:
        return 0


def _has_rows(array: Array, rows: int) -> bool:
    return array.ndim > 0 and array.shape[0] == rows
