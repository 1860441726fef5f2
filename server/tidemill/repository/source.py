"""A model's folder with its configuration and a fingerprint of its files; opens no model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from tidemill.bundle.config import ModelConfig
from tidemill.errors import ConfigError
from tidemill.repository.configuration import folder_config
from tidemill.repository.layout import ModelFolder

__all__ = ["Fingerprint", "Source", "read_source"]

Fingerprint: TypeAlias = tuple[tuple[str, int, int], ...]
"""Path, size and time of change of every file; what is copied over changes it at every step."""


@dataclass(frozen=True, slots=True)
class Source:
    """What a model is made from.

    Attributes:
        folder: Where it lies.
        config: How it wants to be served.
        files: The fingerprint of everything in the folder.
        fault: Why it cannot be served; "" if it can be tried.
        given: The configuration if it came from elsewhere than the folder, as text; "" if not.
    """

    folder: ModelFolder
    config: ModelConfig = field(default_factory=ModelConfig)
    files: Fingerprint = ()
    fault: str = ""
    given: str = ""

    @property
    def name(self) -> str:
        """The model."""
        return self.folder.name

    @property
    def members(self) -> list[str]:
        """The models that it runs if it is an ensemble, or asks if it is a pipeline."""
        ensemble = self.config.ensemble
        if self.config.pipeline:
            return list(dict.fromkeys(self.config.pipeline.models))
        return list(dict.fromkeys(step.model for step in ensemble.steps)) if ensemble else []

    def fingerprint(self, version: int | None = None) -> tuple[str, Fingerprint]:
        """What changes when the model does, or only one of its versions with what all of them share."""
        if version is None:
            return self.given, self.files
        return self.given, tuple(file for file in self.files if "/" not in file[0] or file[0].startswith(f"{version}/"))


def read_source(folder: ModelFolder, config: ModelConfig | None = None) -> Source:
    """Look at a model's folder.

    Args:
        folder: The folder.
        config: To be used instead of the one that lies there.
    """
    if folder.fault:
        return Source(folder, fault=folder.fault)
    files = tuple(sorted(_files(folder.path, folder.path)))
    try:
        given = "" if config is None else repr(config)
        return Source(folder, folder_config(folder) if config is None else config, files, given=given)
    except ConfigError as error:
        return Source(folder, files=files, fault=str(error))


def _files(folder: Path, root: Path) -> Iterator[tuple[str, int, int]]:
    for path in folder.iterdir():
        if path.name.startswith("."):
            continue
        if path.is_dir() and not path.is_symlink():
            yield from _files(path, root)
        else:
            yield _file(path, root)


def _file(path: Path, root: Path) -> tuple[str, int, int]:
    try:
        found = path.stat()
    except OSError:  # it went away meanwhile, or is a link to nowhere
        return path.relative_to(root).as_posix(), -1, 0
    return path.relative_to(root).as_posix(), found.st_size, found.st_mtime_ns
