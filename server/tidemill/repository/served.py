"""One version of one model, from its folder to its answers; knows no transport and no other model but its base."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from enum import Enum
from functools import partial
from typing import Any

from tidemill.adapters.adapter import Adapter
from tidemill.batching.urgency import Urgency
from tidemill.bundle.config import ModelConfig
from tidemill.errors import InvalidArgument, ModelNotReady
from tidemill.protocol.signature import Signature, check_inputs, check_names
from tidemill.protocol.types import Array, InferRequest, InferResponse, ModelMetadata, Parameter, TensorSpec
from tidemill.repository.description import PLATFORM, describe
from tidemill.repository.memory import Memory
from tidemill.repository.running import RunningModel
from tidemill.repository.started import Started
from tidemill.repository.stateful import StatefulModel

__all__ = ["ModelState", "ServedModel"]


class ModelState(Enum):
    """Where a model stands between its folder and the end of its service."""

    LOADING = "LOADING"
    WARMING = "WARMING"
    READY = "READY"
    DRAINING = "DRAINING"
    UNAVAILABLE = "UNAVAILABLE"
    FAILED = "FAILED"


class ServedModel:
    """What a caller's request meets: the signature it is checked against, then the adapter, then the batcher.

    Attributes:
        name: The model.
        version: Its version number as text; "" for a model whose folder is unusable.
        reason: Why the model is not READY, "" if there is nothing to say.
        load_seconds: How long it took to become READY.
        stalled: What is wrong with a run that does not end, "" if none is; it stays READY, for others may serve.
        labels: The names of an output's classes, by output name.
    """

    def __init__(self, name: str, version: str, on_state: Callable[[ServedModel], None]) -> None:
        """Begin in LOADING.

        Args:
            name: The model.
            version: Its version number as text.
            on_state: Called after every change of state.
        """
        self.name = name
        self.version = version
        self.reason = ""
        self.load_seconds = 0.0
        self.stalled = ""
        self.labels: Mapping[str, tuple[str, ...]] = {}
        self._state = ModelState.LOADING
        self._on_state = on_state
        self._running: RunningModel | None = None
        self._left: RunningModel | None = None
        self._adapter: Adapter | None = None
        self._config = ModelConfig()
        self._owned = self._lingers = False
        self._stateful: StatefulModel | None = None
        self._memory: Memory | None = None
        self._signature = Signature(())

    @classmethod
    def idle(cls, name: str) -> ServedModel:
        """Stands for a model that was never asked for."""
        served = cls(name, "", lambda _: None)
        served.begin_retiring("it was not loaded")
        return served

    @property
    def state(self) -> ModelState:
        """The state now."""
        return self._state

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """What callers send; the adapter's inputs if there is one, without what is kept for them."""
        if self._stateful:
            return self._stateful.inputs
        return self._adapter.inputs if self._adapter else self.running.inputs

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        """What callers get."""
        return self._stateful.outputs if self._stateful else self.running.outputs

    @property
    def running(self) -> RunningModel:
        """The model behind the name.

        Raises:
            ModelNotReady: It is not loaded, or no longer.
        """
        if self._running is None:
            raise ModelNotReady(self.not_ready_reason())
        return self._running

    @property
    def takes(self) -> bool:
        """Whether it takes requests: it is READY, or lets sequences come to their end."""
        return self._state is ModelState.READY or self._lingers

    @property
    def queued(self) -> int:
        """Requests that wait for a run; those of a shared model count where it is owned."""
        return self._running.queued if self._running and self._owned else 0

    @property
    def busy(self) -> int:
        """Instances that are running now; those of a shared model count where it is owned."""
        return self._running.busy if self._running and self._owned else 0

    @property
    def longest_run(self) -> float:
        """Seconds that the oldest run under way has taken by now; 0 if none is, or another model owns it."""
        return self._running.longest_run if self._running and self._owned else 0.0

    @property
    def placement(self) -> Mapping[str, int]:
        """How many nodes each provider executes; nothing for a model that another runs, or that is not loaded."""
        return self._running.instance.placement.nodes if self._running and self._owned else {}

    def not_ready_reason(self) -> str:
        """Why requests are refused; "" if they are not."""
        if self._state is ModelState.READY:
            return ""
        because = f": {self.reason}" if self.reason else ""
        version = f" version {self.version}" if self.version else ""
        return f"model {self.name!r}{version} is {self._state.value}{because}"

    def stalled_reason(self) -> str:
        """What is wrong with a run that does not end; "" if none is."""
        return f"model {self.name!r} version {self.version} is stuck: {self.stalled}" if self.stalled else ""

    def advance(self, state: ModelState) -> None:
        """Move on to the next state."""
        self._state = state
        self._on_state(self)

    def attach(
        self,
        running: RunningModel,
        adapter: Adapter | None,
        config: ModelConfig,
        *,
        owned: bool,
        stateful: StatefulModel | None = None,
        memory: Memory | None = None,
    ) -> None:
        """Take over a loaded model.

        Args:
            running: What runs the requests.
            adapter: What stands before it.
            config: How it was configured.
            owned: Whether `running` ends with this model; False if it is the base's.
            stateful: What keeps the states of sequences; None if the model has none.
            memory: What keeps answers; None if nothing does.
        """
        self._running, self._adapter, self._config, self._owned = running, adapter, config, owned
        self._stateful, self._memory = stateful, memory
        if stateful:
            stateful.belong(self)
        self._signature = Signature(self.inputs)

    def ready(self, load_seconds: float) -> None:
        """Take requests from now on."""
        self.load_seconds = load_seconds
        self.advance(ModelState.READY)

    def fail(self, reason: str) -> None:
        """Give up; the reason is shown wherever the model is asked for."""
        self.reason = reason
        self.advance(ModelState.FAILED)

    def is_run_by(self, base: ServedModel | None) -> bool:
        """Whether it is run by this base; by none if it has a bundle of its own."""
        return self._owned if base is None else self._running is base._running

    def announce(self, on_state: Callable[[ServedModel], None]) -> None:
        """Have state changes told to somebody else from now on, beginning with the state now."""
        self._on_state = on_state
        on_state(self)

    def silence(self) -> None:
        """Tell nobody of state changes any more: another model has taken this one's place."""
        self._on_state = lambda _: None

    def held(self) -> AbstractContextManager[None]:
        """Keep it from being let go meanwhile."""
        return self.running.held()

    async def drain(self) -> None:
        """Return when every request that was taken is answered."""
        if self._running and self._owned:
            await self._running.drain()

    async def retire(self, reason: str, *, lingers: bool = False) -> None:
        """Refuse new requests at once, answer those that were taken, and let go of the model.

        Args:
            reason: What callers are told.
            lingers: Whether sequences may go on to their end first.
        """
        self.begin_retiring(reason)
        if self._stateful:
            self._lingers = lingers
            await self._stateful.leave(reason, lingers=lingers)
            self._lingers = False
        await self.drain()
        self.close()

    def begin_retiring(self, reason: str) -> None:
        """Refuse new requests, as a first step of `retire`."""
        self.reason = reason
        if self._state is ModelState.READY:
            self.advance(ModelState.DRAINING)
        elif self._state is not ModelState.DRAINING:
            self.advance(ModelState.UNAVAILABLE)

    def close(self) -> None:
        """Let go of the model; requests that still wait fail with ShuttingDown."""
        running, self._running = self._running, None
        self._left = running if self._owned else None
        if self._stateful:
            self._stateful.close()
        if running and self._owned:
            running.close()
        if self._state is not ModelState.FAILED:
            self.advance(ModelState.UNAVAILABLE)

    def abandon(self) -> None:
        """End the runs that were under way when it was closed, and have not ended by themselves."""
        if self._left:
            self._left.abandon()

    def metadata(self, versions: Iterable[str]) -> ModelMetadata:
        """The signature, beside the versions to show; ModelNotReady before the model is loaded."""
        return ModelMetadata(self.name, tuple(versions), PLATFORM, self.inputs, self.outputs)

    def config(self) -> dict[str, Any]:
        """How it is served, in the field names of Triton's ModelConfig; ModelNotReady before it is loaded."""
        return describe(self.name, (self.inputs, self.outputs), self.running, self._config)

    @property
    def direct(self) -> RunningModel | None:
        """What runs requests as they come; None while there is none, or if they are converted first."""
        return None if self._adapter or self._stateful or self._memory else self._running

    def check(self, inputs: Mapping[str, Array]) -> Mapping[str, int]:
        """The sizes of the symbolic dims in inputs that fit; InvalidArgument if they do not."""
        return self._signature.check(inputs)

    def count_tokens(self, inputs: Mapping[str, Array]) -> int:
        """How many tokens the texts in checked inputs have; 0 for a model that takes no text."""
        return self._adapter.count_tokens(inputs) if self._adapter else 0

    async def infer(self, request: InferRequest, deadline: float | None = None) -> InferResponse:
        """Run a request and pick the outputs that it asked for; see `start`."""
        started = self.start(request, deadline)
        await started.outputs
        return started.response()

    def start(self, request: InferRequest, deadline: float | None = None) -> Started:
        """Check a request and have it run.

        Args:
            request: Inputs by name; arrays may be read-only views.
            deadline: When the answer stops being wanted, in the batcher's clock.

        Raises:
            InvalidArgument: A name, dtype, shape or value does not fit the model.
            TidemillError: The run failed, or could not be made (in time).
        """
        running, stateful = self.running, self._stateful
        if stateful and (owner := stateful.owner(request.parameters, request.model_version)):
            return owner.start(request, deadline)
        names = running.output_names
        if request.outputs:
            wanted = [output.name for output in request.outputs]
            check_names("output", names, wanted)
            names = wanted
        urgency = _urgency(request.parameters) if request.parameters else None
        if stateful:
            outputs = stateful.submit(request.inputs, request.parameters, deadline, urgency)
            hidden = not request.outputs and request.parameters.get("sequence_id")
            return Started(self, request, [spec.name for spec in self.outputs] if hidden else names, outputs)
        sizes = self._signature.check(request.inputs)
        if self._memory is None:
            return Started(self, request, names, self._submit(running, request, sizes, (deadline, urgency)))
        run = partial(self._submit, running, request, sizes, (deadline, urgency))
        return Started(self, request, names, self._memory.answer(request, names, run, running))

    def _submit(
        self,
        running: RunningModel,
        request: InferRequest,
        sizes: Mapping[str, int],
        wanted: tuple[float | None, Urgency | None],
    ) -> asyncio.Future[Mapping[str, Array]]:
        if self._adapter is None:
            return running.submit(request.inputs, sizes, *wanted)
        return asyncio.ensure_future(self._convert_and_run(running, self._adapter, request.inputs, *wanted))

    async def _convert_and_run(
        self,
        running: RunningModel,
        adapter: Adapter,
        inputs: Mapping[str, Array],
        deadline: float | None,
        urgency: Urgency | None,
    ) -> Mapping[str, Array]:
        with running.held():
            feed = await asyncio.to_thread(adapter.convert, inputs)
            return await running.submit(feed, check_inputs(running.inputs, feed), deadline, urgency)


def _urgency(parameters: Mapping[str, Parameter]) -> Urgency:
    """What the parameters `priority` and `timeout` (microseconds) ask of the queue; 0 is as good as none."""
    return Urgency(_count("priority", parameters), _count("timeout", parameters) / 1e6)


def _count(name: str, parameters: Mapping[str, Parameter]) -> int:
    value = parameters.get(name, 0)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise InvalidArgument(f"parameter {name!r} is {value!r}, expected a whole number of 0 or more")
    return value
