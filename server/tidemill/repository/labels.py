"""The names of a model's classes, from files beside its configuration; knows nothing of models."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

from tidemill.errors import ConfigError

__all__ = ["read_labels"]


def read_labels(files: Mapping[str, str], folder: Path, outputs: Collection[str]) -> dict[str, tuple[str, ...]]:
    """Read one label a line.

    Args:
        files: The file of each output, relative to `folder`.
        folder: The model's folder.
        outputs: The model's outputs.

    Raises:
        ConfigError: There is no such output, or the file is missing, leads out of the folder or is not UTF-8.
    """
    labels = {}
    for output, file in files.items():
        if output not in outputs:
            raise ConfigError(f"labels: the model has no output {output!r}; it has {', '.join(outputs)}")
        labels[output] = _read(file, folder)
    return labels


def _read(file: str, folder: Path) -> tuple[str, ...]:
    path = folder / file
    if "\0" in file or not path.resolve().is_relative_to(folder.resolve()):
        raise ConfigError(f"labels: {file!r} leads out of the model's folder")
    try:
        return tuple(path.read_text(encoding="utf-8").splitlines())
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"labels: cannot read {file!r}: {error}") from None
