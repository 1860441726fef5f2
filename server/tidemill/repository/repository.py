"""All served models by name and version: loaded, found on every request, replaced under traffic, let go at the end."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from tidemill.engine.artifact import ArtifactCache
from tidemill.errors import ConfigError, LoadFailed, ModelNotFound, Unavailable
from tidemill.repository.bringup import BringUp, Events
from tidemill.repository.catalogue import Catalogue
from tidemill.repository.control import RepositoryControl
from tidemill.repository.layout import OneModel, find_folder, scan
from tidemill.repository.mirror import Mirror
from tidemill.repository.renewal import Renewal
from tidemill.repository.response_cache import ResponseCache
from tidemill.repository.served import ModelState, ServedModel
from tidemill.repository.shelf import Shelf
from tidemill.repository.source import Source, read_source
from tidemill.repository.upload import Upload, read_upload

__all__ = ["Events", "Place", "Repository"]

_LOG = logging.getLogger("tidemill.repository")

Place: TypeAlias = Path | OneModel | Mirror
"""Where models are: in a folder, as a single one, or in a store."""

_LONGEST_WAIT = 60.0
"""Seconds between two attempts to bring back a model that broke."""


class Repository(Catalogue):
    """The served models of one server, and how they change; belongs to one event loop."""

    def __init__(self, places: Sequence[Place], bring_up: BringUp, control: RepositoryControl) -> None:
        """List what the repository folders hold; see `open`."""
        super().__init__()
        self._mirrors = [place for place in places if isinstance(place, Mirror)]
        self._paths = tuple(place.path if isinstance(place, Mirror) else place for place in places)
        self._control = control
        self._renewal = Renewal(self, bring_up, self._on_broken)
        self._reviving: dict[str, asyncio.Task[None]] = {}
        self._waits: dict[str, float] = {}
        self._locks: dict[str, asyncio.Lock] = {}
        self._seen: dict[str, object] = {}
        if not self._mirrors:
            self._list()

    @classmethod
    def open(
        cls,
        places: Sequence[Place],
        events: Events | None = None,
        clock: Callable[[], float] = time.monotonic,
        control: RepositoryControl | None = None,
        artifacts: ArtifactCache | None = None,
        cache: ResponseCache | None = None,
        allow_code: bool = False,
    ) -> Repository:
        """List what the repository folders hold; every model to be served is LOADING until `load_all`.

        Args:
            places: The repositories; no model may be in two of them. Those in stores are fetched by `load_all`.
            events: Who is told of states and batches.
            clock: Seconds; deadlines are given in it.
            control: Which models are loaded when.
            artifacts: Where optimised graphs are kept.
            cache: Where the answers of models are kept that ask for it.
            allow_code: Whether Python code that lies in the repositories is run.

        Raises:
            ConfigError: A path is no repository, two hold the same model, or one to start with is in none.
        """
        control = control or RepositoryControl()
        repository = cls(places, BringUp(events or Events(), clock, artifacts, cache, allow_code=allow_code), control)
        if not repository._mirrors:
            repository._check_start()
        return repository

    async def load_all(self) -> None:
        """Load and warm every model to be served; one that fails keeps its reason and disturbs no other.

        Raises:
            LoadFailed: A repository that lies in a store cannot be fetched.
            ConfigError: What was fetched is no repository, or lacks a model that is to be loaded.
        """
        if self._mirrors:
            await self._fetch()
            self._list()
            self._check_start()
        self._want_members()
        wanted = [name for name, shelf in self.shelves.items() if shelf.wanted]
        roots = dict.fromkeys(self.root(name) for name in wanted)
        await asyncio.gather(*(self._renew(root) for root in roots if not self.members(root)))
        # An ensemble of ensembles that comes too early is looked at again when they are ready.
        for ensemble in filter(self.members, roots):
            await self._renew(ensemble)

    async def load(
        self, name: str, config: Mapping[str, Any] | None = None, files: Mapping[str, bytes] | None = None
    ) -> None:
        """Load a model, or load it again if its folder has changed; return when the new one serves.

        Args:
            name: The model.
            config: To be used instead of what lies in its folder, until it is loaded again: the fields of model.yaml
                or of Triton's ModelConfig.
            files: To be used instead of its folder, by path; need a config beside them.

        Raises:
            ModelNotFound: No repository holds it.
            InvalidArgument: The config or the files are wrong.
            LoadFailed: It cannot be loaded; what was served before goes on serving.
            Unavailable: The repositories are watched.
        """
        self._refuse_if_polling()
        if files is None:
            await self._fetch()
        upload = await asyncio.to_thread(read_upload, name, config, files)
        source = await asyncio.to_thread(self._find_source, name, upload)
        if faults := await self._change(source, upload):
            raise LoadFailed(f"model {name!r} cannot be loaded: {'; '.join(faults)}")

    async def unload(self, name: str, dependents: bool = False) -> None:
        """Take a model out of service: new requests are refused at once, those that were taken are answered first.

        Args:
            name: The model; those that it runs go with it.
            dependents: Whether its base or its members go too, unless they are needed by others that are served.

        Raises:
            ModelNotFound: There is no such model.
            Unavailable: The repositories are watched.
        """
        self._refuse_if_polling()
        if name not in self.shelves:
            raise ModelNotFound(self.unknown_model(name))
        members = self.members(name) if dependents else []
        await self._withdraw(name, dependents=dependents)
        for member in members:
            if member in self.shelves and not self.users(member):
                await self._withdraw(member, dependents=True)

    async def watch(self) -> None:
        """Look for changes for ever, at the pace that `RepositoryControl` sets."""
        while True:
            await asyncio.sleep(self._control.poll_seconds)
            await self.poll()

    async def poll(self) -> None:
        """Load what is new or has changed and was left alone since the last look, and unload what is gone."""
        try:
            await self._fetch()
            sources = await asyncio.to_thread(lambda: [read_source(folder) for folder in scan(self._paths)])
        except (ConfigError, LoadFailed) as error:
            _LOG.error("the repositories cannot be read, so nothing is changed: %s", error)
            return
        for source in sources:
            if self._has_settled(source):
                await self._change(source)
        present = {source.name for source in sources}
        for name in [name for name, shelf in self.shelves.items() if shelf.wanted and name not in present]:
            await self._withdraw(name)

    @property
    def models(self) -> list[ServedModel]:
        """Every version of every model, those that are on their way out included."""
        return self._all()

    @property
    def leaving(self) -> list[ServedModel]:
        """The models that were replaced and still answer what they had taken."""
        return self._renewal.leaving

    async def drain(self) -> None:
        """Take no more requests and return when all that were taken are answered."""
        for served in self._all():
            if served.state is ModelState.READY:
                served.begin_retiring("")
        await asyncio.gather(*(served.drain() for served in self._all()))

    def close(self) -> None:
        """Let go of all models; requests that still wait fail with ShuttingDown."""
        for task in self._reviving.values():
            task.cancel()
        for served in self._all():
            served.close()
        for shelf in self.shelves.values():
            shelf.drop_files()

    def abandon(self) -> None:
        """After `close`, end the runs that are still under way."""
        for served in self._all():
            served.abandon()

    def _list(self) -> None:
        """Show what the folders hold."""
        for folder in scan(self._paths):
            self.shelves[folder.name] = Shelf(read_source(folder), wanted=self._control.starts(folder.name))
        for shelf in self.shelves.values():
            self._renewal.show(shelf)

    def _check_start(self) -> None:
        if unknown := set(self._control.start or ()) - set(self.names()):
            raise ConfigError(f"no repository holds the model {sorted(unknown)[0]!r}, which is to be loaded")

    async def _fetch(self) -> None:
        """Bring the folders of those repositories up to date that lie in stores."""
        async with self._lock(""):
            for mirror in self._mirrors:
                await asyncio.to_thread(mirror.renew)

    def _find_source(self, name: str, upload: Upload | None) -> Source:
        folder = upload.folder if upload and upload.folder else find_folder(self._paths, name)
        if folder is None:
            raise ModelNotFound(self.unknown_model(name))
        return read_source(folder, upload.config if upload else None)

    def _has_settled(self, source: Source) -> bool:
        """Whether a source is not what is served, and has not changed since it was looked at last."""
        shelf, fingerprint = self.shelves.get(source.name), source.fingerprint()
        if shelf and shelf.wanted and shelf.source.fingerprint() == fingerprint:
            return False
        before = self._seen.get(source.name)
        self._seen[source.name] = fingerprint
        return before == fingerprint

    async def _change(self, source: Source, upload: Upload | None = None) -> list[str]:
        """Serve a model as its source says now; returns what was wrong with it."""
        for member in source.members:
            await self._serve_member(member)
        root = source.config.base or source.name
        async with self._lock(root):
            if root not in self.shelves and root != source.name and (base := find_folder(self._paths, root)):
                self.shelves[root] = Shelf(read_source(base), wanted=True)
            shelf = self.shelves.setdefault(source.name, Shelf(source, wanted=True))
            shelf.source, shelf.wanted = source, True
            self._waits.pop(root, None)
            shelf.keep_files(upload.files if upload else None)
            return (await self._renewal.renew(root)).get(source.name, [])

    async def _serve_member(self, name: str) -> None:
        """Load a member of an ensemble, unless it is served."""
        shelf, folder = self.shelves.get(name), await asyncio.to_thread(find_folder, self._paths, name)
        if folder and not (shelf and shelf.wanted):
            await self._change(await asyncio.to_thread(read_source, folder))

    def _want_members(self) -> None:
        """An ensemble that is loaded at the start has its members loaded with it."""
        waiting = [name for name, shelf in self.shelves.items() if shelf.wanted]
        while waiting:
            for member in self.members(waiting.pop()):
                shelf = self.shelves.get(member)
                if shelf and not shelf.wanted:
                    shelf.wanted = True
                    self._renewal.show(shelf)
                    waiting.append(member)

    async def _renew(self, root: str) -> None:
        async with self._lock(root):
            await self._renewal.renew(root)

    def _on_broken(self, broken: ServedModel, reason: str) -> None:
        """Take a model that only fails out of service, with those that it runs, and load it again after a while."""
        if broken.state is not ModelState.READY:  # it is on its way out already
            return
        _LOG.error("model %r version %s is taken out of service: %s", broken.name, broken.version, reason)
        for served in [served for served in self._all() if served.is_run_by(broken)]:
            self._renewal.retire(served, reason)
        if broken.name not in self._reviving:
            self._reviving[broken.name] = asyncio.ensure_future(self._revive(broken.name))

    async def _revive(self, name: str) -> None:
        shelf = self.shelves[name]
        while shelf.wanted and not next(shelf.ready(), None):
            wait = self._waits.setdefault(name, self._control.restart_seconds)
            self._waits[name] = min(2 * wait, _LONGEST_WAIT)
            await asyncio.sleep(wait)
            if shelf.wanted:
                await self._renew(name)
        del self._reviving[name]

    async def _withdraw(self, name: str, *, dependents: bool = False) -> None:
        root = self.root(name)
        async with self._lock(root):
            tasks = [
                self._renewal.retire(served, reason)
                for member, reason in self._going_with(name, dependents=dependents).items()
                for served in self.shelves[member].take_out()
            ]
        await asyncio.gather(*map(asyncio.shield, tasks))

    def _going_with(self, name: str, *, dependents: bool) -> dict[str, str]:
        """The models to unload with the reason that is shown, those first that are run by others."""
        root = self.root(name)
        going = dict.fromkeys(self.run_by(root), f"its base {root!r} was unloaded") if root == name else {}
        going[name] = "unloaded"
        if dependents and root != name and root in self.shelves and self.run_by(root) == [name]:
            going[root] = "unloaded"
        return going

    def _lock(self, root: str) -> asyncio.Lock:
        return self._locks.setdefault(root, asyncio.Lock())

    def _refuse_if_polling(self) -> None:
        if self._control.poll_seconds:
            raise Unavailable("the repositories are watched for changes; models are not loaded or unloaded by hand")

    def _all(self) -> list[ServedModel]:
        shown = [served for shelf in self.shelves.values() for served in shelf.versions.values()]
        return [*shown, *self.leaving]

    def not_ready_reason(self) -> str:
        """As `Catalogue.not_ready_reason`; a server that was told what to start with may be without any model."""
        return super().not_ready_reason() if self.shelves or self._control.start is None else ""
