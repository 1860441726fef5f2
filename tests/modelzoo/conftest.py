"""The zoo's models, built once and ready to run, and the numbers of the original implementations."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tidemill.bundle import open_bundle
from tidemill.engine import Instance
from tidemill.modelzoo import ZOO

_DATA = Path(__file__).parents[1] / "data" / "models"

_PACKAGES = {"skimage": "scikit-image", "sklearn": "scikit-learn"}

Open = Callable[..., Instance]


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Builds a model of the zoo once and returns the repository, or skips if its weights are not installed."""
    repository = tmp_path_factory.mktemp("zoo")
    build = cache(lambda name: ZOO[name].build(repository))

    def build_or_skip(name: str) -> Path:
        try:
            build(name)
        except ModuleNotFoundError as missing:
            pytest.skip(str(missing))
        return repository

    return build_or_skip


@pytest.fixture(scope="session")
def open_model(built: Callable[[str], Path]) -> Open:
    """Opens a model of the zoo; `served` is which, where it is not called as the zoo calls it."""

    @cache
    def load(name: str, served: str) -> Instance:
        return Instance.open(open_bundle(built(name) / served / "1"))

    return lambda name, served="": load(name, served or name)


@pytest.fixture(scope="session")
def expected() -> Callable[[str], Any]:
    """What the original implementation gave, by the fixture's name."""
    return cache(lambda name: json.loads((_DATA / f"{name}.json").read_text()))


@pytest.fixture(scope="session")
def sample() -> Callable[[str, str], Path]:
    """A picture or table that comes with a package, or a skip that says which."""

    def find(package: str, path: str) -> Path:
        spec = find_spec(package)
        if spec is None or not spec.submodule_search_locations:
            pytest.skip(f"needs the package {_PACKAGES[package]}; run: make weights-large")
        return Path(spec.submodule_search_locations[0]) / path

    return find
