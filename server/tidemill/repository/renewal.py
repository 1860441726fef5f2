"""New versions in place of old ones, without a moment in which none serves; knows neither folders nor requests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial

from tidemill.bundle.config import ModelConfig
from tidemill.repository.bringup import BringUp
from tidemill.repository.catalogue import Catalogue
from tidemill.repository.ensemble import ServedEnsemble
from tidemill.repository.pipeline import ServedPipeline
from tidemill.repository.plan import Plan, count_wanted, plans_of
from tidemill.repository.served import ModelState, ServedModel
from tidemill.repository.served_generator import ServedGenerator
from tidemill.repository.shelf import Lineup, Shelf

__all__ = ["Renewal"]


class Renewal:
    """Brings models to what their sources say, and lets the old ones go.

    A model and those that it runs (their `base` is this one) change together: new versions are loaded and warmed
    beside the old, then all are swapped in one turn of the loop, and the old ones answer what they had taken.
    """

    def __init__(self, catalogue: Catalogue, bring_up: BringUp, on_broken: Callable[[ServedModel, str], None]) -> None:
        self._catalogue = catalogue
        self._on_broken = on_broken
        self._bring_up = bring_up
        self._announce = bring_up.events.on_state
        self._leaving: dict[asyncio.Task[None], ServedModel] = {}

    @property
    def leaving(self) -> list[ServedModel]:
        """The models that answer their last requests."""
        return [*self._leaving.values()]

    def _on_state(self, served: ServedModel) -> None:
        self._announce(served)
        for ensemble in self._catalogue.ensembles():
            if served.name in ensemble.member_names:
                ensemble.follow()

    def show(self, shelf: Shelf) -> None:
        """List a model before it is loaded."""
        if not shelf.wanted:
            shelf.put(ServedModel.idle(shelf.source.name))
            return
        plans = plans_of(shelf.source, self._catalogue.sources())
        for plan in plans[: count_wanted(plans)]:
            self._newcomer(shelf, plan)

    async def renew(self, root: str) -> dict[str, list[str]]:
        """Bring a model and those that it runs to what their sources say.

        Args:
            root: The model; the caller sees to it that it is renewed by nobody else meanwhile.

        Returns:
            What was wrong, by the model's name.
        """
        lineups: dict[str, Lineup] = {}
        bases: Mapping[str, ServedModel] = {}
        shelves = self._catalogue.shelves
        if root in shelves:
            shelves[root].wanted = True
            lineups[root] = await self._line_up(shelves[root], {})
            bases = {served.version: served for served in lineups[root].members()}
        for name in self._catalogue.run_by(root):
            lineups[name] = await self._line_up(shelves[name], bases)
        retired = [old for name, lineup in lineups.items() for old in shelves[name].swap(lineup, self._on_state)]
        for served in retired:
            self.retire(served, "unloaded", lingers=True)
        return {name: lineup.faults for name, lineup in lineups.items()}

    async def _line_up(self, shelf: Shelf, bases: Mapping[str, ServedModel]) -> Lineup:
        """Bring up as many versions as are wanted, the newest first; older ones stand in for those that fail."""
        plans = plans_of(shelf.source, self._catalogue.sources())
        if bases:
            plans = [plan for plan in plans if plan.version in bases] or plans
        lineup = Lineup({plan.version for plan in plans} | set(map(str, shelf.source.folder.versions)))
        wanted = count_wanted(plans)
        for plan in plans:
            if len(lineup.ready) < wanted:
                await self._try(shelf, plan, lineup, bases)
        return lineup

    async def _try(self, shelf: Shelf, plan: Plan, lineup: Lineup, bases: Mapping[str, ServedModel]) -> None:
        current, base = shelf.current(plan.version), bases.get(plan.version)
        if current and shelf.is_made_from(current, plan.fingerprint) and current.is_run_by(base):
            lineup.add_ready(plan, current)
            return
        served = self._newcomer(shelf, plan)
        if not (fault := await self._start(plan, served, base)):
            lineup.add_ready(plan, served)
            return
        lineup.faults.append(f"version {plan.version}: {fault}" if plan.version else fault)
        if current and current.is_run_by(base):
            lineup.ready[plan.version] = current
        else:
            lineup.failed[plan.version] = served

    async def _start(self, plan: Plan, served: ServedModel, base: ServedModel | None) -> str:
        return await self._bring_up(plan, served, base, partial(self._on_broken, served), self._catalogue.get)

    def _newcomer(self, shelf: Shelf, plan: Plan) -> ServedModel:
        """The model to bring up: shown at once, unless another serves the version meanwhile."""
        kind = _kind(plan.config)
        listed = shelf.versions.get(plan.version)
        if listed and listed.state is ModelState.LOADING and type(listed) is kind:
            return listed
        if listed and listed.state is ModelState.READY:
            return kind(plan.name, plan.version, lambda _: None)
        served = kind(plan.name, plan.version, self._on_state)
        shelf.put(served)
        self._on_state(served)
        return served

    def retire(self, served: ServedModel, reason: str, *, lingers: bool = False) -> asyncio.Task[None]:
        """Refuse new requests at once, answer those that were taken, then let go of the model; see its `retire`."""
        served.begin_retiring(reason)
        task = asyncio.ensure_future(served.retire(reason, lingers=lingers))
        self._leaving[task] = served
        task.add_done_callback(self._leaving.pop)
        return task


def _kind(config: ModelConfig) -> type[ServedModel]:
    if config.pipeline:
        return ServedPipeline
    if config.generation:
        return ServedGenerator
    return ServedEnsemble if config.ensemble else ServedModel
