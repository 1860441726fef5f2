"""The models of a server as they stand: found on every request, listed, told apart; changes nothing."""

from __future__ import annotations

from difflib import get_close_matches
from pathlib import Path

from tidemill.errors import ModelNotFound, ModelNotReady, VersionNotFound
from tidemill.protocol.index import ModelIndex
from tidemill.repository.ensemble import ServedEnsemble
from tidemill.repository.served import ModelState, ServedModel
from tidemill.repository.shelf import Shelf
from tidemill.repository.source import Source

__all__ = ["Catalogue"]

_SHOWN = 200
_TYPO = 3
"""Characters that a mistyped name may have more or less."""
_NAMED = 20

_INDEX_STATES = {
    ModelState.LOADING: "LOADING",
    ModelState.WARMING: "LOADING",
    ModelState.READY: "READY",
    ModelState.DRAINING: "UNLOADING",
    ModelState.UNAVAILABLE: "UNAVAILABLE",
    ModelState.FAILED: "UNAVAILABLE",
}


class Catalogue:
    """Served models by name and version.

    Attributes:
        shelves: The versions of each model by its name.
    """

    def __init__(self) -> None:
        self.shelves: dict[str, Shelf] = {}

    def find(self, name: str, version: str = "") -> ServedModel:
        """A model in whatever state; without a version the newest ready one, or the newest if none is.

        Raises:
            ModelNotFound: There is no such model.
            VersionNotFound: There is, but not this version of it.
        """
        shelf = self.shelves.get(name)
        if shelf is None:
            raise ModelNotFound(self.unknown_model(name))
        if not version:
            versions = shelf.versions.values()
            for served in versions:
                if served.state is ModelState.READY:
                    return served
            return next(iter(versions))
        if version not in shelf.versions:
            listed = ", ".join(filter(None, shelf.versions)) or "none"
            raise VersionNotFound(f"model {name!r} has no version {version[:_SHOWN]!r}; it has {listed}")
        return shelf.versions[version]

    def get(self, name: str, version: str = "") -> ServedModel:
        """A model that is ready.

        Raises:
            NotFound: There is no such model or version.
            ModelNotReady: It is loading, has failed or is being let go; the message says which and why.
        """
        served = self.find(name, version)
        if not served.takes:
            raise ModelNotReady(served.not_ready_reason())
        return served

    def folder(self, name: str, version: str = "") -> Path:
        """Where the version of a ready model, or of its base, lies.

        Raises:
            NotFound: There is no such model or version, or it has no files of its own.
            ModelNotReady: It is not ready.
        """
        number = self.get(name, version).version
        if self.members(name):
            raise VersionNotFound(f"model {name!r} is an ensemble and has no graph of its own; its members have")
        found = self.shelves[self.root(name)].source.folder.versions.get(int(number or 0))
        if found is None:
            raise VersionNotFound(f"version {number} of model {name!r} is no longer in its folder")
        return found

    def names(self) -> list[str]:
        """The names of all models, in order."""
        return sorted(self.shelves)

    def ready_versions(self, name: str) -> tuple[str, ...]:
        """The versions of a model that are ready, oldest first; none for an unknown model."""
        shelf = self.shelves.get(name)
        return tuple(reversed([served.version for served in shelf.ready()])) if shelf else ()

    def not_ready_reason(self) -> str:
        """Why not every model that is to be served is; "" if each has a version that is.

        Without any model a server is not ready.
        """
        if not self.shelves:
            return "there are no models to serve"
        waiting = [shelf for shelf in self.shelves.values() if shelf.wanted and not next(shelf.ready(), None)]
        lost = (ModelState.FAILED, ModelState.UNAVAILABLE)
        newest = [next(iter(shelf.versions.values())) for shelf in waiting]
        reasons = [served.not_ready_reason() for served in newest if served.state in lost]
        stalled = [served for shelf in self.shelves.values() for served in shelf.ready() if served.stalled]
        return "; ".join([*reasons, *(served.stalled_reason() for served in stalled)])

    def index(self) -> list[ModelIndex]:
        """Every version of every model with its state; only the name of one that was never asked for."""
        return [self._index_of(served) for name in self.names() for served in self.shelves[name].versions.values()]

    def _index_of(self, served: ServedModel) -> ModelIndex:
        if not served.version and served.state is ModelState.UNAVAILABLE:
            return ModelIndex(served.name)
        return ModelIndex(served.name, served.version, _INDEX_STATES[served.state], served.reason or served.stalled)

    def sources(self) -> dict[str, Source]:
        """What each model is made from."""
        return {name: shelf.source for name, shelf in self.shelves.items()}

    def ensembles(self) -> list[ServedEnsemble]:
        """The served ensembles, ready or not."""
        shown = (served for shelf in self.shelves.values() for served in shelf.versions.values())
        return [served for served in shown if isinstance(served, ServedEnsemble)]

    def members(self, name: str) -> list[str]:
        """The models that an ensemble runs; none for another model."""
        return self.shelves[name].source.members if name in self.shelves else []

    def users(self, name: str) -> list[str]:
        """The models that are to be served and need this one: as a base, or as a member."""
        needing = [user for user, shelf in self.shelves.items() if shelf.wanted and name in shelf.source.members]
        return [*needing, *self.run_by(name)]

    def run_by(self, root: str) -> list[str]:
        """The models that are to be served and name this base."""
        return [name for name, shelf in self.shelves.items() if shelf.wanted and shelf.source.config.base == root]

    def root(self, name: str) -> str:
        """The model that runs this one: its base, or itself."""
        base = self.shelves[name].source.config.base
        return base if base is not None and base in self.shelves else name

    def unknown_model(self, name: str) -> str:
        """What to say of a name that no model has."""
        # Comparing takes time, and whoever asks for what is not there may do so often.
        alike = [known for known in self.names() if abs(len(known) - len(name)) <= _TYPO][:_NAMED]
        close = get_close_matches(name, alike, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"served are {self._listed()}"
        return f"unknown model {name[:_SHOWN]!r}; {hint}"

    def _listed(self) -> str:
        names = self.names()
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        return (", ".join(names[:_NAMED]) or "none") + more
