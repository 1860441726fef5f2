"""What the server does for its callers, whatever wire they come over; knows neither HTTP nor gRPC."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import version as installed_version
from typing import Any

from tidemill.errors import ModelNotReady, TidemillError, Unsupported
from tidemill.protocol.index import ModelIndex
from tidemill.protocol.types import InferRequest, InferResponse, ModelMetadata, ServerMetadata
from tidemill.repository.loading import read_graph
from tidemill.repository.repository import Repository
from tidemill.repository.served import ServedModel
from tidemill.repository.served_generator import ServedGenerator
from tidemill.repository.watchdog import Watchdog
from tidemill.serving.admission import Admission, Admitted
from tidemill.serving.changes import Changes
from tidemill.serving.config import ServerConfig
from tidemill.serving.control import Control
from tidemill.serving.log_settings import LogSettings
from tidemill.serving.metrics import Metrics
from tidemill.serving.recorder import Recorder
from tidemill.serving.shared_memory import SharedMemory
from tidemill.serving.trace_settings import TraceSettings
from tidemill.serving.underway import Underway

__all__ = ["Service"]

_EXTENSIONS = (
    "binary_tensor_data",
    "classification",
    "generate",
    "logging",
    "model_configuration",
    "model_repository",
    "model_repository(unload_dependents)",
    "parameters",
    "schedule_policy",
    "sequence",
    "statistics",
    "system_shared_memory",
    "trace",
)


class Service:
    """One server's models, behind every face.

    Attributes:
        config: The operator's settings.
        metrics: What is counted.
        control: Loads and unloads models.
        memory: The shared memory that callers registered.
        traces: Which requests leave a trace.
        logs: What the log holds.
        admission: Who is in the server.
        recorder: Keeps what the last requests looked like; None if nobody wants to know.
        changes: Announces when `ready`, `refusing` or a model's state may have changed.
    """

    def __init__(
        self,
        repository: Repository,
        metrics: Metrics,
        config: ServerConfig,
        changes: Changes,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.config = config
        self.metrics = metrics
        self.changes = changes
        self.control = Control(repository, config)
        self.memory = SharedMemory(allowed=config.system_shared_memory, limit=config.max_request_bytes)
        self.traces = TraceSettings()
        self.logs = LogSettings(config.log_level)
        self._repository = repository
        self._clock = clock
        self._loaded = False
        self._draining = False
        self.admission = Admission(repository, metrics, config.max_inflight, clock)
        size = config.recorded_requests
        self.recorder = Recorder(size, clock) if size else None
        self._watching: list[asyncio.Task[None]] = []
        metrics.watch_inflight(lambda: self.admission.inflight)

    async def load(self) -> None:
        """Load and warm every model; those that fail are not ready and say why."""
        if limit := self.config.stuck_after_seconds:
            watchdog = Watchdog(lambda: self._repository.models, limit, self.changes.announce)
            self._watching.append(asyncio.create_task(watchdog.watch()))
        await self._repository.load_all()
        self._loaded = True
        if self.config.effective_model_control == "poll":
            self._watching.append(asyncio.create_task(self._repository.watch()))
        self.changes.announce()

    def drain(self) -> None:
        """Become not ready, so that nothing new is routed here, and go on serving."""
        self._draining = True
        self.changes.announce()

    def refuse(self) -> None:
        """Refuse new requests; those in flight go on."""
        self.admission.refusing = True
        for task in self._watching:
            task.cancel()
        self.changes.announce()

    def close(self) -> None:
        """Let go of the models; what still waits in a queue fails with ShuttingDown."""
        self._repository.close()

    def abandon(self) -> None:
        """After `close`, end the runs that are still under way: their requests fail with ShuttingDown."""
        self._repository.abandon()

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
        return self.admission.inflight

    @property
    def refusing(self) -> bool:
        """Whether the server has come to its end and takes no more requests."""
        return self.admission.refusing

    def server_metadata(self) -> ServerMetadata:
        """Who answers."""
        offered = [name for name in _EXTENSIONS if name != "system_shared_memory" or self.memory.allowed]
        return ServerMetadata("tidemill", installed_version("tidemill"), tuple(offered))

    def model_metadata(self, name: str, version: str = "") -> ModelMetadata:
        """The signature of a model and the versions that are ready; without a version, of the newest ready one.

        Raises:
            NotFound: There is no such model or version.
            ModelNotReady: There is, but it is not ready.
        """
        served = self._repository.get(name, version)
        versions = (version,) if version else self._repository.ready_versions(name)
        return served.metadata(versions)

    def model_config(self, name: str, version: str = "") -> dict[str, Any]:
        """How a model is served, as the fields of a ModelConfig.

        Raises:
            NotFound: There is no such model or version.
            ModelNotReady: There is, but it is not ready.
        """
        return self._repository.get(name, version).config()

    async def model_graph(self, name: str, version: str = "") -> dict[str, Any]:
        """The nodes and functions of a model's graph, for people to look at: the fields of a `GraphOutline`.

        Raises:
            NotFound: There is no such model or version, or it is not made of one graph.
            ModelNotReady: There is, but it is not ready.
        """
        folder = self._repository.folder(name, version)
        return asdict(await asyncio.to_thread(read_graph, folder))

    def find(self, name: str, version: str = "") -> ServedModel:
        """A model that is ready; without a version the newest.

        Raises:
            NotFound: There is no such model or version.
            ModelNotReady: There is, but it is not ready.
        """
        return self._repository.get(name, version)

    def makes_texts(self, name: str, version: str = "") -> bool:
        """Whether a model is there, is ready, and answers with pieces of text."""
        try:
            return isinstance(self._repository.get(name, version), ServedGenerator)
        except TidemillError:
            return False

    def statistics(self, name: str = "", version: str = "") -> list[dict[str, Any]]:
        """What a version, the ready versions of a model, or those of all models have done, each as a ModelStatistics.

        Raises:
            NotFound: There is no such model or version.
            ModelNotReady: There is, but it is not ready.
        """
        served = self._repository.get(name, version) if name else None
        found = [served] if served and version else self._ready(name)
        return [self.metrics.model(one.name, one.version).tally.to_document(one.name, one.version) for one in found]

    def trace_settings(self, model: str = "") -> dict[str, tuple[str, ...]]:
        """The trace settings of a model, or of all; NotFound if there is no such model."""
        if model:
            self._repository.find(model)
        return self.traces.get(model)

    def update_trace_settings(self, changes: Mapping[str, Sequence[str]], model: str = "") -> None:
        """Change the trace settings of a model, or of all that have none of their own.

        Raises:
            NotFound: There is no such model.
            InvalidArgument: A setting is unknown or has an impossible value.
            Unsupported: Callers may not change settings here, or not this one.
        """
        if model:
            self._repository.find(model)
        if changes:
            self._check_settings_allowed()
            self.traces.update(changes, model)

    def update_log_settings(self, changes: Mapping[str, object]) -> None:
        """Change what the log holds.

        Raises:
            InvalidArgument: A setting is unknown or of the wrong type.
            Unsupported: Callers may not change settings here, or not this one.
        """
        if changes:
            self._check_settings_allowed()
            self.logs.update(changes)

    def model_not_ready_reason(self, name: str, version: str = "") -> str:
        """Why a model is not ready; "" if it is.

        Raises:
            NotFound: There is no such model or version.
        """
        try:
            return self._repository.get(name, version).stalled_reason()
        except ModelNotReady as error:
            return str(error)

    def model_names(self) -> list[str]:
        """The names of all models, ready or not."""
        return self._repository.names()

    def index(self, ready: bool = False) -> list[ModelIndex]:
        """Every version of every model with its state, or only those that are ready."""
        return [entry for entry in self._repository.index() if not ready or entry.state == "READY"]

    def track(self, protocol: str, name: str, version: str, carrier: Mapping[str, str] | None = None) -> Admitted:
        """Admit, time and count one request, from its first byte to its encoded answer; see `Admission.enter`."""
        return self.admission.enter(protocol, name, version, carrier)

    async def infer(self, request: InferRequest, within: float | None = None) -> InferResponse:
        """Answer one request; see `begin`."""
        underway = self.begin(request, within)
        await underway.outputs
        return underway.finish()

    def begin(self, request: InferRequest, within: float | None = None, served: ServedModel | None = None) -> Underway:
        """Have one request answered.

        Args:
            request: The decoded request; its parameter `timeout` is in microseconds.
            within: Seconds after which nobody waits for the answer any more; None if the caller set no limit.
            served: The model, if it was looked up before; it is looked up again if it is no longer ready.

        Raises:
            TidemillError: The request is wrong, or cannot be answered.
        """
        begun = self._clock()
        deadline = self._deadline(request, within, begun)
        held = self.memory.hold(request.outputs) if request.outputs else {}
        if served is None or not served.takes:
            served = self._repository.get(request.model_name, request.model_version)
        return Underway(served.start(request, deadline), held, self.traces, self._clock, begun)

    def _deadline(self, request: InferRequest, within: float | None, now: float) -> float | None:
        timeout = request.parameters.get("timeout", 0) if request.parameters else 0
        if within is None and not timeout:
            return None
        limits = [limit for limit in (within, float(timeout) / 1e6 or None) if limit is not None]
        return now + min(limits) if limits else None

    def _ready(self, name: str) -> list[ServedModel]:
        names = [name] if name else self._repository.names()
        return [self._repository.get(one, version) for one in names for version in self._repository.ready_versions(one)]

    def _check_settings_allowed(self) -> None:
        if not self.config.may_change_settings:
            raise Unsupported("callers may not change settings here; the operator can allow it (settings_control)")
