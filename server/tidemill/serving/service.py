"""What the server does for its callers, whatever wire they come over; knows neither HTTP nor gRPC."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import version as installed_version

from tidemill.errors import ModelNotReady, NotFound, QueueFull, ShuttingDown, TidemillError
from tidemill.protocol.index import ModelIndex
from tidemill.protocol.types import InferRequest, InferResponse, ModelMetadata, ServerMetadata
from tidemill.repository.repository import Repository
from tidemill.serving.config import ServerConfig
from tidemill.serving.metrics import OK, Metrics, ModelMetrics

__all__ = ["Service"]

_EXTENSIONS = ("binary_tensor_data", "parameters")


class Service:
    """One server's models, behind every face.

    Attributes:
        config: The operator's settings.
        metrics: What is counted.
    """

    def __init__(
        self,
        repository: Repository,
        metrics: Metrics,
        config: ServerConfig,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.config = config
        self.metrics = metrics
        self._repository = repository
        self._clock = clock
        self._inflight = 0
        self._loaded = False
        self._draining = False
        self._refusing = False
        self._changed = asyncio.Event()
        metrics.watch_inflight(lambda: self._inflight)

    async def load(self) -> None:
        """Load and warm every model; those that fail are not ready and say why."""
        await self._repository.load_all()
        self._loaded = True
        self._announce()

    def drain(self) -> None:
        """Become not ready, so that nothing new is routed here, and go on serving."""
        self._draining = True
        self._announce()

    def refuse(self) -> None:
        """Refuse new requests; those in flight go on."""
        self._refusing = True
        self._announce()

    def close(self) -> None:
        """Let go of the models; what still waits in a queue fails with ShuttingDown."""
        self._repository.close()

    def not_ready_reason(self) -> str:
        """Why the server is not ready; "" if it is."""
        if self._draining:
            return "the server is shutting down"
        if not self._loaded:
            return "models are loading"
        return self._repository.not_ready_reason() if self.config.strict_readiness else ""

    @property
    def ready(self) -> bool:
        """Whether requests should be routed here."""
        return not self.not_ready_reason()

    @property
    def inflight(self) -> int:
        """Requests that are in the server now."""
        return self._inflight

    @property
    def refusing(self) -> bool:
        """Whether the server has come to its end and takes no more requests."""
        return self._refusing

    async def readiness_changed(self) -> None:
        """Return when `ready` or `refusing` may have changed."""
        await self._changed.wait()

    def server_metadata(self) -> ServerMetadata:
        """Who answers."""
        return ServerMetadata("tidemill", installed_version("tidemill"), _EXTENSIONS)

    def model_metadata(self, name: str, version: str = "") -> ModelMetadata:
        """The signature of a model and the versions that are ready; without a version, of the newest ready one.

        Raises:
            NotFound: There is no such model or version.
            ModelNotReady: There is, but it is not ready.
        """
        served = self._repository.get(name, version)
        versions = (version,) if version else self._repository.ready_versions(name)
        return served.metadata(versions)

    def model_not_ready_reason(self, name: str, version: str = "") -> str:
        """Why a model is not ready; "" if it is.

        Raises:
            NotFound: There is no such model or version.
        """
        try:
            self._repository.get(name, version)
        except ModelNotReady as error:
            return str(error)
        return ""

    def model_names(self) -> list[str]:
        """The names of all models, ready or not."""
        return self._repository.names()

    def index(self, ready: bool = False) -> list[ModelIndex]:
        """Every version of every model with its state, or only those that are ready."""
        return [entry for entry in self._repository.index() if not ready or entry.state == "READY"]

    @contextmanager
    def track(self, protocol: str, name: str, version: str) -> Iterator[None]:
        """Admit, time and count one request, from its first byte to its encoded answer.

        Args:
            protocol: "rest" or "grpc".
            name: The model asked for, which need not exist.
            version: The version asked for; "" for the newest.

        Raises:
            ShuttingDown: The server no longer takes requests.
            QueueFull: `max_inflight` requests are here already.
            NotFound: There is no such model or version.
            ModelNotReady: There is, but it is not ready.
        """
        started = self._clock()
        self._inflight += 1
        code = "internal"
        try:
            self._admit()
            # A wrong address is told before anything that is wrong with the body.
            self._repository.get(name, version)
            yield
            code = OK
        except TidemillError as error:
            code = error.code
            raise
        except asyncio.CancelledError:
            code = "cancelled"
            raise
        finally:
            self._inflight -= 1
            self._metrics_of(name, version).on_request(protocol, code, self._clock() - started)

    async def infer(self, request: InferRequest, within: float | None = None) -> InferResponse:
        """Answer one request.

        Args:
            request: The decoded request; its parameter `timeout` is in microseconds.
            within: Seconds after which nobody waits for the answer any more; None if the caller set no limit.

        Raises:
            TidemillError: The request is wrong, or cannot be answered (in time).
        """
        deadline = self._deadline(request, within)
        served = self._repository.get(request.model_name, request.model_version)
        return await served.infer(request, deadline)

    def _deadline(self, request: InferRequest, within: float | None) -> float | None:
        timeout = request.parameters.get("timeout", 0)
        limits = [limit for limit in (within, float(timeout) / 1e6 or None) if limit is not None]
        return self._clock() + min(limits) if limits else None

    def _admit(self) -> None:
        if self._refusing:
            raise ShuttingDown("the server is shutting down")
        limit = self.config.max_inflight
        if self._inflight > limit:
            raise QueueFull(f"{limit} requests are in the server already (max_inflight); try again later")

    def _metrics_of(self, name: str, version: str) -> ModelMetrics:
        # Names that callers made up must not become series.
        try:
            return self.metrics.model(name, self._repository.find(name, version).version)
        except NotFound:
            return self.metrics.unknown

    def _announce(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()
