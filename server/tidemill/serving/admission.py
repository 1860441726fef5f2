"""Who is in the server: each request admitted, timed and counted; knows no wire and nothing of what is answered."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from types import TracebackType

from tidemill.errors import NotFound, QueueFull, ShuttingDown, TidemillError
from tidemill.protocol.types import InferRequest, Timing
from tidemill.repository.repository import Repository
from tidemill.repository.served import ServedModel
from tidemill.serving.metrics import OK, Metrics, ModelMetrics
from tidemill.serving.request_id import HEADER, read_request_id
from tidemill.serving.seen import RequestSeen, Watcher, shapes_of

__all__ = ["Admission", "Admitted"]

_INTERNAL = "internal"


class Admission:
    """The door of one server.

    Attributes:
        inflight: Requests that are inside.
        refusing: Whether nobody is let in any more.
        clock: Seconds.
        watchers: Are told of every request that is over.
        apart: Whether they have to be told of each by itself, so that none are answered as one.
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
        self.watchers: tuple[Watcher, ...] = ()
        self.apart = False
        self._repository = repository
        self._metrics = metrics
        self._limit = limit

    def enter(self, protocol: str, name: str, version: str, carrier: Mapping[str, str] | None = None) -> Admitted:
        """Let one request in.

        Args:
            protocol: "rest", "grpc" or "stream".
            name: The model asked for, which need not exist.
            version: The version asked for; "" for the newest.
            carrier: The caller's headers, among which are its id and the trace that it belongs to; None for none.

        Raises:
            ShuttingDown: The server no longer takes requests.
            QueueFull: `max_inflight` requests are here already.
            NotFound: There is no such model or version.
            ModelNotReady: There is, but it is not ready.
        """
        self.inflight += 1
        admitted = Admitted(self, protocol, self._metrics.unknown)
        admitted.carrier = carrier
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
        carrier: The caller's headers, if they are at hand.
        request: What was asked, once it is read.
        timing: Where its time went, once that is known.
    """

    __slots__ = ("_admission", "_protocol", "carrier", "metrics", "request", "served", "started", "timing")

    def __init__(self, admission: Admission, protocol: str, metrics: ModelMetrics) -> None:
        self._admission = admission
        self._protocol = protocol
        self.metrics = metrics
        self.served: ServedModel | None = None
        self.carrier: Mapping[str, str] | None = None
        self.request: InferRequest | None = None
        self.timing: Timing | None = None
        self.started = admission.clock()

    @property
    def seconds(self) -> float:
        """How long it has been here."""
        return self._admission.clock() - self.started

    def leave(self, error: BaseException | None = None) -> None:
        """Count it, as answered or as failed with `error`."""
        self._admission.inflight -= 1
        code = OK if error is None else _code(error)
        seconds = self.seconds
        self.metrics.on_request(self._protocol, code, seconds)
        if self._admission.watchers:
            seen = self._seen(code, seconds, "" if error is None or code == _INTERNAL else str(error))
            for watcher in self._admission.watchers:
                watcher(seen)

    def _seen(self, code: str, seconds: float, reason: str) -> RequestSeen:
        served, request = self.served, self.request
        return RequestSeen(
            model=served.name if served else "",
            version=served.version if served else "",
            protocol=self._protocol,
            carrier=self.carrier or {},
            started=self.started,
            seconds=seconds,
            code=code,
            reason=reason,
            timing=self.timing,
            shapes=shapes_of(request.inputs) if request else (),
            request_id=self._request_id(),
        )

    def _request_id(self) -> str:
        shown = self.carrier.get(HEADER) if self.carrier else None
        return read_request_id(shown) or read_request_id(self.request.id if self.request else "")

    def __enter__(self) -> Admitted:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.leave(error)


def _code(error: BaseException) -> str:
    if isinstance(error, TidemillError):
        return error.code
    return "cancelled" if isinstance(error, asyncio.CancelledError) else _INTERNAL
