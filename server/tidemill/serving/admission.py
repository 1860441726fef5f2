"""Who is in the server: each request admitted, timed and counted; knows no wire and nothing of what is answered."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType

from tidemill.errors import NotFound, QueueFull, ShuttingDown, TidemillError
from tidemill.repository.repository import Repository
from tidemill.repository.served import ServedModel
from tidemill.serving.metrics import OK, Metrics, ModelMetrics

__all__ = ["Admission", "Admitted"]


class Admission:
    """The door of one server.

    Attributes:
        inflight: Requests that are inside.
        refusing: Whether nobody is let in any more.
    """

    def __init__(self, repository: Repository, metrics: Metrics, limit: int, clock: Callable[[], float]) -> None:
        """Open the door.

        Args:
            repository: Knows which models are ready.
            metrics: What counts the requests.
            limit: The most requests that may be inside.
            clock: Seconds.
        """
        self.inflight = 0
        self.refusing = False
        self.clock = clock
        self._repository = repository
        self._metrics = metrics
        self._limit = limit

    def enter(self, protocol: str, name: str, version: str) -> Admitted:
        """Let one request in.

        Args:
            protocol: "rest", "grpc" or "stream".
            name: The model asked for, which need not exist.
            version: The version asked for; "" for the newest.

        Raises:
            ShuttingDown: The server no longer takes requests.
            QueueFull: `max_inflight` requests are here already.
            NotFound: There is no such model or version.
            ModelNotReady: There is, but it is not ready.
        """
        self.inflight += 1
        admitted = Admitted(self, protocol, self._metrics.unknown)
        try:
            self._check_room()
            # A wrong address is told before anything that is wrong with the body.
            served = self._repository.get(name, version)
        except TidemillError as error:
            admitted.metrics = self._metrics_of(name, version)
            admitted.leave(error)
            raise
        admitted.metrics = self._metrics.model(served.name, served.version)
        admitted.served = served
        return admitted

    def has_room(self, count: int) -> bool:
        """Whether so many requests would be let in now."""
        return not self.refusing and self.inflight + count <= self._limit

    def try_enter(self, protocol: str, name: str, version: str) -> Admitted | None:
        """As `enter`, but None, and nothing counted, where that would raise."""
        if not self.has_room(1):
            return None
        try:
            served = self._repository.get(name, version)
        except TidemillError:
            return None
        self.inflight += 1
        admitted = Admitted(self, protocol, self._metrics.model(served.name, served.version))
        admitted.served = served
        return admitted

    def _check_room(self) -> None:
        if self.refusing:
            raise ShuttingDown("the server is shutting down")
        if self.inflight > self._limit:
            raise QueueFull(f"{self._limit} requests are in the server already (max_inflight); try again later")

    def _metrics_of(self, name: str, version: str) -> ModelMetrics:
        # Names that callers made up must not become series.
        try:
            return self._metrics.model(name, self._repository.find(name, version).version)
        except NotFound:
            return self._metrics.unknown


class Admitted:
    """One request inside, until its answer is encoded: the block of a `with`, or up to a call of `leave`.

    Attributes:
        started: When it came, in the server's clock.
        metrics: Where it is counted.
        served: The model that it found; None if it found none.
    """

    __slots__ = ("_admission", "_protocol", "metrics", "served", "started")

    def __init__(self, admission: Admission, protocol: str, metrics: ModelMetrics) -> None:
        self._admission = admission
        self._protocol = protocol
        self.metrics = metrics
        self.served: ServedModel | None = None
        self.started = admission.clock()

    @property
    def seconds(self) -> float:
        """How long it has been here."""
        return self._admission.clock() - self.started

    def leave(self, error: BaseException | None = None) -> None:
        """Count it, as answered or as failed with `error`."""
        self._admission.inflight -= 1
        self.metrics.on_request(self._protocol, OK if error is None else _code(error), self.seconds)

    def __enter__(self) -> Admitted:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.leave(error)


def _code(error: BaseException) -> str:
    if isinstance(error, TidemillError):
        return error.code
    return "cancelled" if isinstance(error, asyncio.CancelledError) else "internal"
