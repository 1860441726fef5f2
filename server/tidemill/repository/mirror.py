"""A repository in a store, kept as a folder of this machine: only what has changed is fetched; loads no model.

A version appears as a whole, after its digests were compared, by one rename; what is in the store no longer goes. So
whoever watches the folder sees what a careful deployment would have made of it.
"""

from __future__ import annotations

import fcntl
import json
import logging
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any
from uuid import uuid4

from tidemill.bundle.manifest import MANIFEST_FILE
from tidemill.bundle.stored import open_bundle
from tidemill.errors import LoadFailed
from tidemill.repository.layout import name_fault
from tidemill.weights.download import Source, download
from tidemill.weights.durable import exchange
from tidemill.weights.location import shown
from tidemill.weights.objectstore import ObjectStore, RemoteFile, StoreOptions
from tidemill.weights.progress import Progress, log_progress

__all__ = ["Mirror"]

_INDEX = ".mirror.json"
_LOCK = ".mirror.lock"
_PART = re.compile(r"[^/.][^/]*/[^/.][^/]*")
_VERSION = re.compile(r"[1-9][0-9]{0,17}")
_LOG = logging.getLogger("tidemill.repository")


@dataclass(frozen=True, slots=True)
class _Part:
    """What appears at once: a version's folder, or one file beside the versions."""

    model: str
    name: str

    @property
    def path(self) -> str:
        return f"{self.model}/{self.name}"


class Mirror:
    """A repository's folder and where it comes from.

    Attributes:
        url: The repository, fit to be shown.
        path: The folder of this machine.
    """

    def __init__(
        self, url: str, path: Path, options: StoreOptions | None = None, progress: Progress = log_progress
    ) -> None:
        """Set up; nothing is fetched.

        Args:
            url: The repository: s3://bucket/path, gs://bucket/path, az://container/path.
            path: The folder to keep; made if it is not there.
            options: How patient to be with the store.
            progress: What is shown while a file is fetched.

        Raises:
            ValueError: The URL is malformed, or a setting is missing.
        """
        self.url = shown(url)
        self.path = path
        self._store = ObjectStore(url.rstrip("/"), options)
        self._address = url.rstrip("/")
        self._options = options
        self._progress = progress
        path.mkdir(parents=True, exist_ok=True)

    def renew(self) -> list[str]:
        """Make the folder hold what the store does; of several processes one does it at a time.

        Returns:
            The parts that were fetched or removed, as `<model>/<version>`.

        Raises:
            LoadFailed: The store cannot be read or holds no model, the folder is somebody else's, a file is not what
                its bundle says, or there is no room; what was whole before is still there.
        """
        try:
            with self._alone():
                return self._renew()
        except (OSError, NotImplementedError, ValueError) as error:
            raise LoadFailed(f"the repository {self.url} cannot be fetched: {error}") from None

    def _renew(self) -> list[str]:
        there = _parts(self._store.describe())
        if not there:
            raise LoadFailed(f"{self.url} holds no model, and so nothing of {self.path} was changed; is the URL right?")
        known = self._read_index()
        wanted = {part: files for part, files in there.items() if known.get(part.path) != _versions(files)}
        # Settings before versions: a new version is to be loaded as the settings beside it say.
        for part in sorted(wanted, key=lambda part: (_VERSION.fullmatch(part.name) is not None, part.path)):
            self._fetch(part, wanted[part])
            known[part.path] = _versions(wanted[part])
            self._write_index(known)
        gone = self._remove_others({part.path for part in there}, {path.split("/")[0] for path in known})
        self._write_index({path: files for path, files in known.items() if path not in gone})
        return sorted([*(part.path for part in wanted), *gone])

    def _remove_others(self, there: set[str], models: set[str]) -> list[str]:
        """Remove what is no longer in the store, and drafts of a process that ended, from the models that are ours."""
        gone = []
        for model in sorted(models):
            folder = self.path / model
            for entry in list(folder.iterdir()) if folder.is_dir() else []:
                path = f"{model}/{entry.name}"
                if path not in there:
                    _remove(entry)
                    gone += [] if entry.name.startswith(".") else [path]
            if folder.is_dir() and not any(folder.iterdir()):
                folder.rmdir()
        return gone

    @contextmanager
    def _alone(self) -> Iterator[None]:
        if not (self.path / _INDEX).exists() and any(entry.name != _LOCK for entry in self.path.iterdir()):
            raise LoadFailed(
                f"{self.path} holds files that were not fetched from {self.url}, which would be lost; give a folder "
                "that is empty or not there yet"
            )
        with (self.path / _LOCK).open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def _fetch(self, part: _Part, files: Mapping[str, RemoteFile]) -> None:
        folder = self.path / part.model
        folder.mkdir(exist_ok=True)
        draft = folder / f".{part.name}.{uuid4().hex}"
        try:
            for name in files:
                self._download(f"{part.model}/{name}", draft / PurePosixPath(name).relative_to(part.name))
            if (draft / MANIFEST_FILE).is_file():
                open_bundle(draft).verify()
            _replace(draft, folder / part.name)
        finally:
            _remove(draft)
        _LOG.info("fetched %s of %s", part.path, self.url)

    def _download(self, name: str, target: Path) -> None:
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("w+b") as file:
            download(Source(f"{self._address}/{name}", self._options), file.fileno(), self._progress)

    def _read_index(self) -> dict[str, Any]:
        """What was fetched, as far as it is still there; nothing of an index that is none."""
        try:
            found = json.loads((self.path / _INDEX).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        if not isinstance(found, dict):
            return {}
        ours = {path: files for path, files in found.items() if _PART.fullmatch(path) and isinstance(files, dict)}
        return {path: files for path, files in ours.items() if (self.path / path).exists()}

    def _write_index(self, known: Mapping[str, Any]) -> None:
        fresh = self.path / f"{_INDEX}.{uuid4().hex}"
        fresh.write_text(json.dumps(known), encoding="utf-8")
        fresh.replace(self.path / _INDEX)


def _parts(files: Mapping[str, RemoteFile]) -> dict[_Part, dict[str, RemoteFile]]:
    """The files of each part by their names below the model; what cannot belong to a model is passed over."""
    found: dict[_Part, dict[str, RemoteFile]] = {}
    # Stores have no folders; some tools leave an empty file in the name of one.
    folders = {str(parent) for path in files for parent in PurePosixPath(path).parents}
    for path, file in files.items():
        if path in folders:
            continue
        steps = PurePosixPath(path).parts
        odd = any(step.startswith(".") or "\\" in step or "\0" in step for step in steps)
        if len(steps) < 2 or odd or name_fault(steps[0]) or path.endswith("/"):
            continue
        found.setdefault(_Part(steps[0], steps[1]), {})["/".join(steps[1:])] = file
    return found


def _versions(files: Mapping[str, RemoteFile]) -> dict[str, list[object]]:
    return {name: [file.size, file.version] for name, file in files.items()}


def _replace(draft: Path, target: Path) -> None:
    """Put a part in its place; files that a model has open stay readable for it."""
    if target.is_dir() != draft.is_dir() and target.exists():
        _remove(target)
    if not target.is_dir():
        draft.replace(target)
        return
    if exchange(draft, target):
        return  # the draft is now what was there, and goes with it
    old = target.with_name(f".{target.name}.{uuid4().hex}")
    target.rename(old)
    draft.rename(target)
    shutil.rmtree(old)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
