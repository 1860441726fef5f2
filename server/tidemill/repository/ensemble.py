"""Served models run one behind the other as one: each through its own batches; knows no graphs and no wire.

Tensors are handed on as they are. An ensemble is ready while its members are and fit each other; whenever one of them
changes, that is looked at again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import Any

from tidemill.batching.record import BatchRecord, Observer
from tidemill.bundle.config import ModelConfig
from tidemill.bundle.ensemble_config import EnsembleConfig, StepConfig
from tidemill.errors import ConfigError, ModelNotReady, NotFound, TidemillError
from tidemill.protocol.signature import Signature, check_names
from tidemill.protocol.types import Array, InferRequest, ModelMetadata, RequestedOutput, TensorSpec
from tidemill.repository.described_ensemble import ENSEMBLE_PLATFORM, describe_ensemble
from tidemill.repository.hold import Hold
from tidemill.repository.served import ModelState, ServedModel
from tidemill.repository.started import Started
from tidemill.repository.wiring import Member, Wiring, wire

__all__ = ["Find", "ServedEnsemble", "Watchers"]

Find = Callable[[str, str], ServedModel]
"""Finds a ready model by name and version."""


class Watchers:
    """Who is told of an ensemble's requests.

    Attributes:
        ensemble: Told of each request as if it were a batch of its own.
        member: Told of each request of a member its model, what came of it ("ok" or an error's code) and its seconds.
    """

    def __init__(self, ensemble: Observer | None, member: Callable[[ServedModel, str, float], None]) -> None:
        self.ensemble = ensemble
        self.member = member


class ServedEnsemble(ServedModel):
    """An ensemble in the place of a model."""

    def __init__(self, name: str, version: str, on_state: Callable[[ServedModel], None]) -> None:
        super().__init__(name, version, on_state)
        self._ensemble: EnsembleConfig | None = None
        self._find: Find | None = None
        self._watchers = Watchers(None, lambda *_: None)
        self._members: tuple[ServedModel, ...] = ()
        self._wiring: Wiring | None = None
        self._hold = Hold()
        self._owned = True

    @property
    def member_names(self) -> list[str]:
        """The models of its steps."""
        return [step.model for step in self._ensemble.steps] if self._ensemble else []

    def connect(self, config: ModelConfig, find: Find, watchers: Watchers) -> None:
        """Take over a configuration.

        Args:
            config: Has a section `ensemble`.
            find: Finds the members.
            watchers: Who is told of requests.

        Raises:
            ConfigError: The members do not fit each other.
            ModelNotReady: One of them is not ready.
            NotFound: One of them does not exist.
        """
        self._config, self._ensemble = config, config.ensemble
        self._find, self._watchers = find, watchers
        self._look()

    def follow(self) -> None:
        """Be ready while the members are and fit; told whenever one of them may have changed."""
        if self._find is None or self._state in (ModelState.DRAINING, ModelState.UNAVAILABLE, ModelState.LOADING):
            return
        try:
            self._look()
        except (ConfigError, ModelNotReady, NotFound) as error:
            if self.reason != str(error):
                self.fail(str(error))
        else:
            self.reason = ""
            if self._state is not ModelState.READY:
                self.advance(ModelState.READY)

    def is_run_by(self, base: ServedModel | None) -> bool:
        """An ensemble has no base."""
        return base is None

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """What callers send."""
        return self._wired.inputs

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        """What callers get."""
        return self._wired.outputs

    @property
    def queued(self) -> int:
        """None waits here; they wait at the members."""
        return 0

    def held(self) -> AbstractContextManager[None]:
        """Keep it and its members from being let go meanwhile."""
        return self._hold.held()

    async def drain(self) -> None:
        """Return when every request that was taken is answered."""
        await self._hold.released()

    def close(self) -> None:
        """Let go of the members."""
        self._ensemble, self._find, self._members, self._wiring = None, None, (), None
        super().close()

    def metadata(self, versions: Iterable[str]) -> ModelMetadata:
        """The signature; ModelNotReady while the members are not."""
        return ModelMetadata(self.name, tuple(versions), ENSEMBLE_PLATFORM, self.inputs, self.outputs)

    def config(self) -> dict[str, Any]:
        """As Triton's ModelConfig; ModelNotReady while the members are not."""
        limits = [member.config()["max_batch_size"] for member in self._members]
        return describe_ensemble(self.name, (self.inputs, self.outputs), self._config, limits)

    def start(self, request: InferRequest, deadline: float | None = None) -> Started:
        """Check a request and have it run; see `ServedModel.start`."""
        wired = self._wired
        names = [spec.name for spec in wired.outputs]
        if request.outputs:
            wanted = [output.name for output in request.outputs]
            check_names("output", names, wanted)
            names = wanted
        self._signature.check(request.inputs)
        # Those that it was checked with run it to the end, whatever takes their place meanwhile.
        holding = ExitStack()
        for served in (self, *self._members):
            holding.enter_context(served.held())
        work = asyncio.ensure_future(_Passage(self._steps, self._members, wired, request, deadline).run(self._watchers))
        work.add_done_callback(lambda _: holding.close())
        return Started(self, request, names, work)

    @property
    def _steps(self) -> Sequence[StepConfig]:
        return self._ensemble.steps if self._ensemble else ()

    @property
    def _wired(self) -> Wiring:
        if self._wiring is None:
            raise ModelNotReady(self.not_ready_reason())
        return self._wiring

    def _look(self) -> None:
        """Compare the members, if they are others than before."""
        if self._find is None:
            raise ModelNotReady(self.not_ready_reason())
        members = tuple(self._find(step.model, str(step.version or "")) for step in self._steps)
        if members == self._members and self._wiring:
            return
        if self._ensemble:
            self._wiring = wire(self._ensemble, [Member(member.inputs, member.outputs) for member in members])
            self._members, self._signature = members, Signature(self._wiring.inputs)


class _Passage:
    """One request on its way through the steps."""

    def __init__(
        self,
        steps: Sequence[StepConfig],
        members: Sequence[ServedModel],
        wiring: Wiring,
        request: InferRequest,
        deadline: float | None,
    ) -> None:
        self._steps = steps
        self._members = members
        self._wiring = wiring
        self._request = request
        self._deadline = deadline
        self._tensors: dict[str, Array] = dict(request.inputs)
        self._running: dict[int, asyncio.Task[None]] = {}

    async def run(self, watchers: Watchers) -> Mapping[str, Array]:
        """Every tensor by name, once all steps are over."""
        began = time.perf_counter()
        failures = 1
        try:
            for number in self._wiring.order:
                self._running[number] = asyncio.create_task(self._run_step(number, watchers))
            await asyncio.gather(*self._running.values())
            failures = 0
            return self._tensors
        finally:
            for task in self._running.values():
                task.cancel()
            if watchers.ensemble:
                seconds = time.perf_counter() - began
                watchers.ensemble(BatchRecord(_rows(self._request), (0.0,), seconds, failures))

    async def _run_step(self, number: int, watchers: Watchers) -> None:
        if needs := self._wiring.needs[number]:
            await asyncio.gather(*(self._running[need] for need in needs))
        step, member = self._steps[number], self._members[number]
        began, code = time.perf_counter(), "cancelled"
        try:
            started = member.start(self._request_of(step), self._deadline)
            await started.outputs
            outputs = started.response().outputs
            code = "ok"
        except TidemillError as error:
            code = error.code
            raise
        finally:
            watchers.member(member, code, time.perf_counter() - began)
        self._tensors.update({tensor: outputs[name] for name, tensor in step.outputs.items()})

    def _request_of(self, step: StepConfig) -> InferRequest:
        return InferRequest(
            step.model,
            {name: self._tensors[tensor] for name, tensor in step.inputs.items()},
            id=self._request.id,
            outputs=tuple(RequestedOutput(name) for name in step.outputs),
            parameters=self._request.parameters,
        )


def _rows(request: InferRequest) -> int:
    first = next(iter(request.inputs.values()), None)
    return first.shape[0] if first is not None and first.ndim else 1
