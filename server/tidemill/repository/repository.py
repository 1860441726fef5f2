"""All served models by name and version: loaded together, found on every request, let go at the end."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from tidemill.adapters.adapter import open_adapter
from tidemill.batching.record import Observer
from tidemill.errors import LoadFailed, ModelNotFound, ModelNotReady, VersionNotFound
from tidemill.protocol.index import ModelIndex
from tidemill.repository.layout import scan
from tidemill.repository.loading import open_instance, start, warm
from tidemill.repository.plan import Plan, make_plans
from tidemill.repository.running import RunningModel
from tidemill.repository.served import ModelState, ServedModel

__all__ = ["Events", "Repository"]

_LOG = logging.getLogger("tidemill.repository")
_SHOWN = 200

_INDEX_STATES = {
    ModelState.LOADING: "LOADING",
    ModelState.WARMING: "LOADING",
    ModelState.READY: "READY",
    ModelState.DRAINING: "UNLOADING",
    ModelState.UNAVAILABLE: "UNAVAILABLE",
    ModelState.FAILED: "UNAVAILABLE",
}


@dataclass(frozen=True, slots=True)
class Events:
    """Who is told what.

    Attributes:
        on_state: Called after every change of a model's state.
        observer: Makes the observer of a model's batches.
    """

    on_state: Callable[[ServedModel], None] = lambda _: None
    observer: Callable[[ServedModel], Observer | None] = lambda _: None


class Repository:
    """The served models of one server; belongs to one event loop."""

    def __init__(self, plans: Sequence[Plan], events: Events, clock: Callable[[], float]) -> None:
        self._events = events
        self._clock = clock
        self._models: dict[str, dict[str, ServedModel]] = {}
        self._plans = [(plan, self._add(plan, events)) for plan in plans]

    @classmethod
    def open(
        cls,
        paths: Sequence[Path],
        events: Events | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> Repository:
        """List what the repository folders hold; every model is LOADING until `load_all`.

        Raises:
            ConfigError: A path is no repository, or two hold the same model.
        """
        return cls(make_plans(scan(paths)), events or Events(), clock)

    async def load_all(self) -> None:
        """Load and warm every model; one that fails keeps its reason and disturbs no other."""
        # A model that is run by a base finds it loaded.
        for derived in (False, True):
            entries = [entry for entry in self._plans if (entry[0].base is not None) is derived]
            await asyncio.gather(*(self._load(plan, served) for plan, served in entries))

    def find(self, name: str, version: str = "") -> ServedModel:
        """A model in whatever state; without a version the newest ready one, or the newest if none is.

        Raises:
            ModelNotFound: There is no such model.
            VersionNotFound: There is, but not this version of it.
        """
        versions = self._models.get(name)
        if versions is None:
            raise ModelNotFound(self._unknown_model(name))
        if not version:
            ready = (served for served in versions.values() if served.state is ModelState.READY)
            return next(ready, next(iter(versions.values())))
        if version not in versions:
            listed = ", ".join(filter(None, versions)) or "none"
            raise VersionNotFound(f"model {name!r} has no version {version[:_SHOWN]!r}; it has {listed}")
        return versions[version]

    def get(self, name: str, version: str = "") -> ServedModel:
        """A model that is ready.

        Raises:
            NotFound: There is no such model or version.
            ModelNotReady: It is loading, has failed or is being let go; the message says which and why.
        """
        served = self.find(name, version)
        if served.state is not ModelState.READY:
            raise ModelNotReady(served.not_ready_reason())
        return served

    def names(self) -> list[str]:
        """The names of all models, in order."""
        return list(self._models)

    def ready_versions(self, name: str) -> tuple[str, ...]:
        """The versions of a model that are ready, oldest first; none for an unknown model."""
        versions = self._models.get(name, {})
        return tuple(reversed([key for key, served in versions.items() if served.state is ModelState.READY]))

    def not_ready_reason(self) -> str:
        """Why not every model is ready; "" if all are. A repository without models is not ready."""
        if not self._models:
            return "there are no models to serve"
        failed = [served for served in self._all() if served.state in (ModelState.FAILED, ModelState.UNAVAILABLE)]
        return "; ".join(served.not_ready_reason() for served in failed)

    def index(self) -> list[ModelIndex]:
        """Every version of every model with its state."""
        return [
            ModelIndex(served.name, served.version, _INDEX_STATES[served.state], served.reason)
            for served in self._all()
        ]

    async def drain(self) -> None:
        """Take no more requests and return when all that were taken are answered."""
        for served in self._all():
            if served.state is ModelState.READY:
                served.advance(ModelState.DRAINING)
        await asyncio.gather(*(served.drain() for served in self._all()))

    def close(self) -> None:
        """Let go of all models; requests that still wait fail with ShuttingDown."""
        for served in self._all():
            served.close()

    def _all(self) -> list[ServedModel]:
        return [served for versions in self._models.values() for served in versions.values()]

    def _add(self, plan: Plan, events: Events) -> ServedModel:
        served = ServedModel(plan.name, plan.version, events.on_state)
        events.on_state(served)
        versions = self._models.setdefault(plan.name, {})
        # The newest comes first: it is the one that requests without a version mean.
        self._models[plan.name] = {plan.version: served, **versions}
        return served

    async def _load(self, plan: Plan, served: ServedModel) -> None:
        started = self._clock()
        try:
            await self._bring_up(plan, served)
        except Exception as error:
            _LOG.error("model %r version %r failed to load: %s", plan.name, plan.version, error)
            served.fail(str(error) or type(error).__name__)
        else:
            served.ready(self._clock() - started)
            _LOG.info("model %r version %s is ready after %.2f s", plan.name, plan.version, served.load_seconds)

    async def _bring_up(self, plan: Plan, served: ServedModel) -> None:
        if plan.base is not None:
            running = self.get(plan.base.name, plan.base.version).running
        elif plan.bundle is not None:
            running = await self._run(plan, plan.bundle, served)
        else:
            raise LoadFailed(plan.fault)
        adapter = await asyncio.to_thread(open_adapter, plan.config.adapter, plan.folder, running.inputs)
        served.attach(running, adapter, owned=plan.base is None)

    async def _run(self, plan: Plan, bundle: Path, served: ServedModel) -> RunningModel:
        instance = await asyncio.to_thread(open_instance, bundle, plan.config)
        served.advance(ModelState.WARMING)
        proof = await asyncio.to_thread(warm, instance, plan.config)
        if not proof.batchable:
            _LOG.info("model %r version %s is not batched: %s", plan.name, plan.version, proof.reason)
        return start(instance, proof, plan.config, self._events.observer(served), self._clock)

    def _unknown_model(self, name: str) -> str:
        close = get_close_matches(name[:_SHOWN], self._models, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"served are {', '.join(self._models) or 'none'}"
        return f"unknown model {name[:_SHOWN]!r}; {hint}"
