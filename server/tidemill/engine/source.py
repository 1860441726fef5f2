"""What of a bundle's graph ONNX Runtime is given; guards it from graphs that are small only in the file."""

from __future__ import annotations

from pathlib import Path

from tidemill.bundle.manifest import GraphEntry
from tidemill.bundle.stored import StoredBundle
from tidemill.bundle.wire import has_functions
from tidemill.errors import ConfigError

__all__ = ["find_graph", "flat_bytes", "model_source"]


def find_graph(bundle: StoredBundle, key: str | None) -> GraphEntry:
    """A graph by its key; the one to serve if there is none.

    Raises:
        ConfigError: The bundle has no such graph.
    """
    if key is None:
        return bundle.manifest.main
    if key not in bundle.manifest.graphs:
        raise ConfigError(f"{bundle.path} has no graph {key!r}; there are {', '.join(bundle.manifest.graphs)}")
    return bundle.manifest.graphs[key]


def model_source(bundle: StoredBundle, graph: GraphEntry) -> Path | bytes:
    """A graph's file, or its bytes with all functions written out if it has any.

    Raises:
        InvalidBundle: Written out, it would be too large.
    """
    path = bundle.path / graph.file
    return flat_bytes(path) if has_functions(path) else path


def flat_bytes(path: Path) -> bytes:
    """A graph's bytes with all functions written out; raises as `model_source`."""
    # onnx takes its time to import, and a bundle without functions or with a cached artifact does without.
    from tidemill.bundle.expansion import read_graph
    from tidemill.bundle.inline import inline_functions

    return bytes(inline_functions(read_graph(path)).SerializeToString())
