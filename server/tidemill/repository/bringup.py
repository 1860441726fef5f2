"""One version of a model brought from its plan to READY; knows no other version and no requests."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from tidemill.adapters.adapter import open_adapter
from tidemill.batching.record import Observer
from tidemill.bundle.config import ModelConfig
from tidemill.engine.artifact import ArtifactCache
from tidemill.engine.instance import Instance
from tidemill.engine.niceness import run_nicely
from tidemill.errors import LoadFailed, ModelNotReady
from tidemill.generation.generator import Observers
from tidemill.repository.breaker import break_after
from tidemill.repository.cache_key import model_digest
from tidemill.repository.calibration import Calibrated, calibrate
from tidemill.repository.ensemble import Find, ServedEnsemble, Watchers
from tidemill.repository.kept_costs import KeptCosts
from tidemill.repository.labels import read_labels
from tidemill.repository.loading import open_instance, warm
from tidemill.repository.memory import Memory
from tidemill.repository.pipeline import ServedPipeline, load_code
from tidemill.repository.plan import Plan
from tidemill.repository.response_cache import Note, ResponseCache
from tidemill.repository.running import RunningModel
from tidemill.repository.served import ModelState, ServedModel
from tidemill.repository.served_generator import ServedGenerator
from tidemill.repository.starting import plan_batching, start
from tidemill.repository.stateful import Owners, StatefulModel, keep_states
from tidemill.repository.text_model import open_text_model

__all__ = ["BringUp", "Events"]

_LOG = logging.getLogger("tidemill.repository")


@dataclass(frozen=True, slots=True)
class Events:
    """Who is told what.

    Attributes:
        on_state: Called after every change of a model's state.
        observer: Makes the observer of a model's batches.
        on_step: Told of each request that an ensemble made to a member: what came of it, and after how many seconds.
        on_cache: Makes what is told of a model's requests whether their answers were kept.
        on_text: Makes the observers of a generator's steps and texts.
    """

    on_state: Callable[[ServedModel], None] = lambda _: None
    observer: Callable[[ServedModel], Observer | None] = lambda _: None
    on_step: Callable[[ServedModel, str, float], None] = lambda _served, _code, _seconds: None
    on_cache: Callable[[ServedModel], Note] = lambda _: lambda _hit, _seconds: None
    on_text: Callable[[ServedModel], Observers | None] = lambda _: None


@dataclass(frozen=True, slots=True)
class BringUp:
    """Loads and warms models.

    Attributes:
        events: Who is told of batches.
        clock: Seconds.
        artifacts: Where optimised graphs are kept; None to optimise at every load.
        cache: Where answers are kept; None to keep none.
        owners: Which version has which sequence, by model.
        allow_code: Whether Python code that lies in repositories is run.
    """

    events: Events
    clock: Callable[[], float]
    artifacts: ArtifactCache | None = None
    cache: ResponseCache | None = None
    owners: dict[str, Owners] = field(default_factory=dict)
    allow_code: bool = False

    async def __call__(
        self, plan: Plan, served: ServedModel, base: ServedModel | None, on_broken: Callable[[str], None], find: Find
    ) -> str:
        """Make a model READY, or FAILED.

        Args:
            plan: What it is made from.
            served: The model.
            base: The model that runs it, if it has no bundle.
            on_broken: Called with the reason once its runs fail again and again.
            find: Finds the members of an ensemble.

        Returns:
            What went wrong; "" if nothing did.
        """
        started = self.clock()
        try:
            if isinstance(served, ServedPipeline):
                await self._use_code(plan, served, find)
            elif isinstance(served, ServedEnsemble):
                await self._connect(plan, served, find)
            elif isinstance(served, ServedGenerator):
                await self._open_generator(plan, served)
            else:
                await self._load(plan, served, base, on_broken)
        except Exception as error:
            _LOG.error("model %r version %r failed to load: %s", plan.name, plan.version, error)
            served.fail(_for_callers(str(error) or type(error).__name__, plan.folder))
            return served.reason
        served.ready(self.clock() - started)
        _LOG.info("model %r version %s is ready after %.2f s", plan.name, plan.version, served.load_seconds)
        return ""

    async def _connect(self, plan: Plan, served: ServedEnsemble, find: Find) -> None:
        if plan.fault:
            raise LoadFailed(plan.fault)
        served.connect(plan.config, find, Watchers(self.events.observer(served), self.events.on_step))
        outputs = [spec.name for spec in served.outputs]
        served.labels = await asyncio.to_thread(read_labels, plan.config.labels, plan.folder, outputs)

    async def _use_code(self, plan: Plan, served: ServedPipeline, find: Find) -> None:
        if plan.fault or plan.config.pipeline is None:
            raise LoadFailed(plan.fault)
        code = await load_code(plan.config.pipeline, plan.folder, allowed=self.allow_code)
        served.use(code, plan.config, find, Watchers(self.events.observer(served), self.events.on_step))
        outputs = [spec.name for spec in served.outputs]
        served.labels = await asyncio.to_thread(read_labels, plan.config.labels, plan.folder, outputs)

    async def _open_generator(self, plan: Plan, served: ServedGenerator) -> None:
        if plan.fault or plan.bundle is None or plan.config.generation is None:
            raise LoadFailed(plan.fault or "there is no bundle")
        open_model = partial(open_instance, plan.bundle, plan.config, self.artifacts)
        # A session's threads inherit the niceness of the one that makes them.
        instance = await asyncio.to_thread(run_nicely, plan.config.generation.niceness, open_model)
        served.advance(ModelState.WARMING)
        observers = self.events.on_text(served)
        model = await open_text_model(instance, plan.config.generation, plan.folder, observers, asyncio.to_thread)
        served.connect(model, plan.config)

    async def _load(
        self, plan: Plan, served: ServedModel, base: ServedModel | None, on_broken: Callable[[str], None]
    ) -> None:
        if plan.fault:
            raise LoadFailed(plan.fault)
        observer = break_after(on_broken, self.events.observer(served))
        running = await self._own(plan, plan.bundle, served, observer) if plan.bundle else _of_base(plan, base)
        adapter = await asyncio.to_thread(open_adapter, plan.config.adapter, plan.folder, running.inputs)
        outputs = [spec.name for spec in running.outputs]
        served.labels = await asyncio.to_thread(read_labels, plan.config.labels, plan.folder, outputs)
        stateful = await asyncio.to_thread(self._keep_states, plan, running) if plan.config.sequence else None
        memory = await asyncio.to_thread(self._remember, plan, served) if plan.config.response_cache.enable else None
        owned = plan.bundle is not None
        served.attach(running, adapter, plan.config, owned=owned, stateful=stateful, memory=memory)
        if owned:
            loop = asyncio.get_running_loop()
            running.instance.watch(lambda reason: _tell(loop, on_broken, reason))

    def _remember(self, plan: Plan, served: ServedModel) -> Memory | None:
        if self.cache is None:
            _LOG.info("model %r: response_cache has no effect, as the server has none (cache_bytes)", plan.name)
            return None
        return Memory(self.cache, model_digest(plan), self.events.on_cache(served))

    def _keep_states(self, plan: Plan, running: RunningModel) -> StatefulModel:
        owners = self.owners.setdefault(plan.name, {})
        return keep_states(running, plan.config, plan.folder, self.clock, owners)

    async def _own(self, plan: Plan, bundle: Path, served: ServedModel, observer: Observer) -> RunningModel:
        kept = KeptCosts(self.artifacts.directory, self.artifacts.strict) if self.artifacts else None
        config, instance = await asyncio.to_thread(self._open, bundle, plan.config, kept)
        served.advance(ModelState.WARMING)
        proof = await asyncio.to_thread(warm, instance, config)
        if not proof.batchable:
            _LOG.info("model %r version %s is not batched: %s", plan.name, plan.version, proof.reason)
        batch_plan = await asyncio.to_thread(plan_batching, instance, proof, config, kept)
        if batch_plan.padding:
            _LOG.info("model %r version %s: %s", plan.name, plan.version, batch_plan.padding)
        return start(instance, batch_plan, config, observer, self.clock)

    def _open(self, bundle: Path, config: ModelConfig, kept: KeptCosts | None) -> Calibrated:
        def open_by(config: ModelConfig) -> Instance:
            return open_instance(bundle, config, self.artifacts)

        return calibrate(config, open_by, kept) if config.instances == "auto" else (config, open_by(config))


def _for_callers(reason: str, folder: Path) -> str:
    """What is wrong with a model, without where on this machine its repository lies: that is for the log."""
    for repository in {folder.parent.absolute(), folder.parent.resolve()}:
        reason = re.sub(rf"(?<![\w.-]){re.escape(str(repository))}/", "", reason)
    return reason


def _tell(loop: asyncio.AbstractEventLoop, on_broken: Callable[[str], None], reason: str) -> None:
    """Pass on from another thread what is of interest until the loop ends."""
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(on_broken, reason)


def _of_base(plan: Plan, base: ServedModel | None) -> RunningModel:
    if base is None:
        raise ModelNotReady(f"its base {plan.config.base!r} is not loaded")
    return base.running
