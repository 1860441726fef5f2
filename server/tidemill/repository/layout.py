"""Which models and versions a repository folder holds; reads names only and knows nothing of what is inside a bundle.

<repository>/<model>/model.yaml
<repository>/<model>/<version>/bundle.json   (or a plain model.onnx)

A single model can stand for a repository, as KServe mounts it: its folder, or one version's files alone.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from tidemill.errors import ConfigError

__all__ = [
    "CONFIG_FILE",
    "TRITON_CONFIG_FILE",
    "ModelFolder",
    "OneModel",
    "find_folder",
    "name_fault",
    "scan",
    "scan_model",
]

CONFIG_FILE = "model.yaml"
TRITON_CONFIG_FILE = "config.pbtxt"
_BUNDLE_FILES = ("bundle.json", "model.onnx")
_MAX_NAME = 200
_VERSION = re.compile(r"[1-9][0-9]{0,17}")
_FORBIDDEN = re.compile(r"[\x00-\x1f\x7f/\\]")


@dataclass(frozen=True, slots=True)
class ModelFolder:
    """One model of a repository.

    Attributes:
        name: The folder's name, which is the model's.
        path: The folder.
        versions: The folder of each complete version by number, ascending.
        fault: Why the folder cannot be served; "" if nothing is wrong with its layout.
    """

    name: str
    path: Path
    versions: Mapping[int, Path] = field(default_factory=dict)
    fault: str = ""

    @property
    def config_path(self) -> Path:
        """Where the model's configuration lies, if it has one."""
        return self.path / CONFIG_FILE


@dataclass(frozen=True, slots=True)
class OneModel:
    """A repository of one model.

    Attributes:
        name: The model's name, whatever the folder's is.
        path: The model's folder with its numbered versions, or the files of its only version.
    """

    name: str
    path: Path

    def folder(self) -> ModelFolder:
        """The model as it stands now; files without a numbered folder are version 1."""
        if fault := name_fault(self.name):
            return ModelFolder(self.name, self.path, fault=fault)
        if _is_complete(self.path):
            return ModelFolder(self.name, self.path, {1: self.path})
        return replace(scan_model(self.path.resolve()), name=self.name)


def scan(repositories: Sequence[Path | OneModel]) -> tuple[ModelFolder, ...]:
    """The models of all repositories in order of their names.

    Folders that hold neither a model.yaml nor a numbered folder are no models and are passed over, as is everything
    whose name starts with a dot.

    Raises:
        ConfigError: A repository does not exist or is itself a bundle, or two repositories hold the same model.
    """
    found: dict[str, ModelFolder] = {}
    for repository in repositories:
        for model in _scan_repository(repository):
            if model.name in found:
                raise ConfigError(f"model {model.name!r} is in two places: {found[model.name].path} and {model.path}")
            found[model.name] = model
    return tuple(found[name] for name in sorted(found))


def find_folder(repositories: Sequence[Path | OneModel], name: str) -> ModelFolder | None:
    """The folder of one model; None if no repository has it. Nothing is looked up for a name that cannot be one.

    Raises:
        ConfigError: Two repositories hold it.
    """
    if name_fault(name):
        return None
    found = [folder for repository in repositories if (folder := _find(repository, name))]
    if len(found) > 1:
        raise ConfigError(f"model {name!r} is in two places: {len(found)} repositories hold it; leave it in one")
    return found[0] if found else None


def scan_model(path: Path) -> ModelFolder:
    """The versions of one model folder."""
    fault = name_fault(path.name)
    if not fault and _leaves(path, path.parent):
        fault = f"{path} is a symbolic link out of its repository; copy the model instead"
    if fault:
        return ModelFolder(path.name, path, fault=fault)
    numbered = sorted((int(entry.name), entry) for entry in path.iterdir() if _is_numbered(entry))
    versions = {number: entry for number, entry in numbered if _is_complete(entry) and not _leaves(entry, path)}
    if not versions and not _has_config(path):
        fault = f"no version of it is complete: none of {[number for number, _ in numbered]} has a bundle.json"
    return ModelFolder(path.name, path, versions, fault)


def name_fault(name: str) -> str:
    """Why this cannot be a model's name; "" if it can."""
    if not name or name.startswith("."):
        return f"a model's name must not be empty or start with a dot, not {name[:_MAX_NAME]!r}"
    if len(name) > _MAX_NAME:
        return f"a model's name has at most {_MAX_NAME} characters, not {len(name)}"
    if _FORBIDDEN.search(name):
        return f"a model's name must not hold slashes or control characters, as {name!r} does"
    return ""


def _find(repository: Path | OneModel, name: str) -> ModelFolder | None:
    if isinstance(repository, OneModel):
        return repository.folder() if repository.name == name else None
    path = repository / name
    return scan_model(path) if path.is_dir() and _is_model(path) else None


def _scan_repository(repository: Path | OneModel) -> list[ModelFolder]:
    if isinstance(repository, OneModel):
        if not repository.path.is_dir():
            raise ConfigError(f"the model {repository.name!r} is to come from {repository.path}, which is not a folder")
        return [repository.folder()]
    if not repository.is_dir():
        raise ConfigError(f"the model repository {repository} is not a folder")
    if _is_complete(repository):
        raise ConfigError(f"{repository} is a bundle; a repository holds it as <repository>/<model>/<version>/")
    entries = [entry for entry in repository.iterdir() if entry.is_dir() and not entry.name.startswith(".")]
    if any(_is_numbered(entry) and _is_complete(entry) for entry in entries):
        raise ConfigError(f"{repository} is a model's folder; serve the folder above it: {repository.parent}")
    return [scan_model(entry) for entry in entries if _is_model(entry)]


def _is_model(path: Path) -> bool:
    # What lies behind a link that leads out is not looked at, not even whether it is a model.
    return _leaves(path, path.parent) or _has_config(path) or any(_is_numbered(entry) for entry in path.iterdir())


def _has_config(path: Path) -> bool:
    return os.path.lexists(path / CONFIG_FILE) or os.path.lexists(path / TRITON_CONFIG_FILE)


def _is_numbered(path: Path) -> bool:
    return _VERSION.fullmatch(path.name) is not None and path.is_dir()


def _is_complete(path: Path) -> bool:
    # A link that leads out, or a pipe, is there: opening the bundle says what is wrong with it.
    return any(os.path.lexists(path / name) for name in _BUNDLE_FILES)


def _leaves(path: Path, root: Path) -> bool:
    return not path.resolve().is_relative_to(root.resolve())
