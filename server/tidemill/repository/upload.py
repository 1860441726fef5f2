"""What a caller gives along with the wish to load a model; writes only into a folder of its own, and runs nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Any

from tidemill.bundle.config import ModelConfig
from tidemill.engine.provider_options import place_options
from tidemill.errors import ConfigError, InvalidArgument
from tidemill.repository.configuration import given_config
from tidemill.repository.layout import ModelFolder, name_fault, scan_model

__all__ = ["Upload", "read_upload"]


@dataclass(frozen=True, slots=True)
class Upload:
    """A configuration, and perhaps a model's whole folder.

    Attributes:
        config: The configuration.
        folder: The folder that the files were written to; None without files.
        files: Removes the folder.
    """

    config: ModelConfig
    folder: ModelFolder | None = None
    files: TemporaryDirectory[str] | None = None


def read_upload(name: str, config: Mapping[str, Any] | None, files: Mapping[str, bytes] | None) -> Upload | None:
    """Check what a caller gave, and write its files down.

    Args:
        name: The model.
        config: Fields of model.yaml or of Triton's ModelConfig.
        files: Contents by path below the model's folder.

    Returns:
        None if nothing was given.

    Raises:
        InvalidArgument: The name or a path cannot be, the config is wrong or asks for what only the operator may ask
            for, or there are files without a config.
    """
    if files and config is None:
        raise InvalidArgument("files can only be loaded together with a config")
    if config is None:
        return None
    try:
        given = given_config(config)
        _check_modest(given)
    except ConfigError as error:
        raise InvalidArgument(str(error)) from None
    return _written(name, given, files) if files else Upload(given)


def _check_modest(config: ModelConfig) -> None:
    """Whoever may load models may neither run code on the server nor choose where it reads and writes files."""
    if config.pipeline:
        raise ConfigError(
            "pipeline: code is run only as the repository's model.yaml says, never as a load request does"
        )
    if places := place_options(config.provider_options):
        raise ConfigError(f"provider_options: {', '.join(places)} can be set in the repository's model.yaml only")


def _written(name: str, config: ModelConfig, files: Mapping[str, bytes]) -> Upload:
    faults = [fault for fault in (name_fault(name), *map(_path_fault, files)) if fault]
    if faults:
        raise InvalidArgument("; ".join(faults))
    kept = TemporaryDirectory(prefix="tidemill-")
    root = Path(kept.name) / name
    for path, content in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(content)
    return Upload(config, scan_model(root), kept)


def _path_fault(path: str) -> str:
    steps = PurePosixPath(path).parts
    if not steps or path.startswith("/") or "\\" in path or any(step == ".." or name_fault(step) for step in steps):
        return f"{path[:200]!r} is no path below a model's folder"
    return ""
