"""What of a bundle's graph ONNX Runtime is given; guards it from graphs that are small only in the file."""

from __future__ import annotations

from pathlib import Path

from tidemill.bundle.expansion import check_expansion
from tidemill.bundle.manifest import GraphEntry
from tidemill.bundle.skeleton import read_skeleton
from tidemill.bundle.stored import StoredBundle
from tidemill.bundle.wire import has_functions
from tidemill.errors import ConfigError

__all__ = ["check_size", "find_graph", "flat_bytes"]


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


def check_size(path: Path) -> None:
    """Raise InvalidBundle if a graph would be too large with its functions written out, as ONNX Runtime does first."""
    if has_functions(path):
        check_expansion(read_skeleton(path.read_bytes()))


def flat_bytes(path: Path) -> bytes:
    """A graph's bytes with all functions written out, each node named by its layer.

    Raises:
        InvalidBundle: Written out, it would be too large.
    """
    # onnx takes its time to import, and a cached artifact does without.
    from tidemill.bundle.graphs import read_graph
    from tidemill.bundle.inline import inline_functions

    return bytes(inline_functions(read_graph(path)).SerializeToString())
