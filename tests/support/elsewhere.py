"""What a test has done in another process; it lies here because that process imports it by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tidemill.bundle import open_bundle
from tidemill.engine import Instance, InstanceOptions
from tidemill.engine.artifact import ArtifactCache

__all__ = ["load_with_artifacts"]


def load_with_artifacts(path: Path, directory: Path, results: Any) -> None:
    """Load a bundle and tell what became of its optimised graph."""
    options = InstanceOptions(threads=1, artifacts=ArtifactCache(directory))
    results.put(Instance.open(open_bundle(path), options).artifact)
