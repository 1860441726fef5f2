"""All versions of one model, those that serve and those that do not; loads nothing itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from tempfile import TemporaryDirectory

from tidemill.repository.plan import Plan
from tidemill.repository.served import ModelState, ServedModel
from tidemill.repository.source import Source

__all__ = ["Lineup", "Shelf"]


class Shelf:
    """The versions of a model by number, the newest first: it is the one that requests without a version mean.

    Attributes:
        source: What they are made from.
        versions: The served models.
        wanted: Whether the model is to be served.
        uploaded: Files that a caller gave and that live as long as the model made from them.
    """

    def __init__(self, source: Source, *, wanted: bool) -> None:
        self.source = source
        self.versions: dict[str, ServedModel] = {}
        self.wanted = wanted
        self.uploaded: TemporaryDirectory[str] | None = None
        self._loaded_from: dict[ServedModel, object] = {}

    def put(self, served: ServedModel) -> None:
        """Show a version, in place of another of the same number."""
        self.versions[served.version] = served
        self.versions = dict(sorted(self.versions.items(), key=lambda entry: -int(entry[0] or 0)))

    def ready(self) -> Iterator[ServedModel]:
        """Those that take requests, newest first."""
        return (served for served in self.versions.values() if served.state is ModelState.READY)

    def current(self, version: str) -> ServedModel | None:
        """The model that takes the requests for a version, if there is one."""
        served = self.versions.get(version)
        return served if served and served.state is ModelState.READY else None

    def is_made_from(self, served: ServedModel, fingerprint: object) -> bool:
        """Whether a served model is what would come of loading it again."""
        return self._loaded_from.get(served) == fingerprint

    def take_out(self) -> list[ServedModel]:
        """Want the model no longer; returns what has to be retired."""
        self.wanted = False
        self.drop_files()
        idle = (ModelState.UNAVAILABLE, ModelState.DRAINING)
        return [served for served in self.versions.values() if served.state not in idle]

    def keep_files(self, uploaded: TemporaryDirectory[str] | None) -> None:
        """Keep what a caller gave, instead of what one gave before; models keep the files open that they need."""
        self.drop_files()
        self.uploaded = uploaded

    def drop_files(self) -> None:
        """Remove what a caller gave."""
        if self.uploaded:
            self.uploaded.cleanup()
            self.uploaded = None

    def swap(self, lineup: Lineup, on_state: Callable[[ServedModel], None]) -> list[ServedModel]:
        """Serve a new line-up from this moment on.

        Returns:
            Those that served before and have to be retired.
        """
        before = [served for served in self.versions.values() if served not in lineup.members()]
        if not lineup.ready:
            before = [served for served in before if served.state is not ModelState.READY]
        for served in before:
            if served.version in lineup.ready:
                served.silence()
                del self.versions[served.version]
            elif served.version not in lineup.possible:
                del self.versions[served.version]
        for served in lineup.members():
            if self.versions.get(served.version) is not served:
                self.put(served)
                served.announce(on_state)
        self._loaded_from = {served: lineup.fingerprints.get(served) for served in lineup.ready.values()}
        return before


@dataclass(slots=True)
class Lineup:
    """What came of bringing up a model's versions.

    Attributes:
        possible: The versions that the model's folder has.
        ready: Those that will serve, by number.
        failed: Those that would not load and have no predecessor that goes on serving.
        faults: What was wrong, a line each.
        fingerprints: What each that will serve was made from.
    """

    possible: set[str]
    ready: dict[str, ServedModel] = field(default_factory=dict)
    failed: dict[str, ServedModel] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    fingerprints: dict[ServedModel, object] = field(default_factory=dict)

    def members(self) -> list[ServedModel]:
        """All that will be shown."""
        return [*self.ready.values(), *self.failed.values()]

    def add_ready(self, plan: Plan, served: ServedModel) -> None:
        """Note a version that will serve."""
        self.ready[plan.version] = served
        self.fingerprints[served] = plan.fingerprint
