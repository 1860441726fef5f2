"""`tidemill inspect`: what a bundle promises, as text."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidemill.bundle.expansion import FunctionUse
    from tidemill.bundle.manifest import BundleManifest, GraphEntry

__all__ = ["add_arguments", "execute"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("bundle", type=Path, help="a version's folder: <repository>/<model>/<version>")


def execute(args: argparse.Namespace) -> int:
    """Show a bundle's signature, functions and files."""
    from tidemill.bundle.expansion import function_uses
    from tidemill.bundle.skeleton import read_skeleton
    from tidemill.repository.loading import open_version

    bundle = open_version(args.bundle)
    functions = {
        key: function_uses(read_skeleton((bundle.path / graph.file).read_bytes()))
        for key, graph in bundle.manifest.graphs.items()
    }
    print("\n".join(_lines(bundle.manifest, functions)))
    return 0


def _lines(manifest: BundleManifest, functions: Mapping[str, Sequence[FunctionUse]]) -> Iterator[str]:
    yield f"name     {manifest.name}"
    if manifest.source:
        yield f"source   {manifest.source}"
    yield f"opset    {manifest.opset}"
    yield "written  " + ", ".join(f"{package} {version}" for package, version in manifest.created_with.items())
    for key, graph in manifest.graphs.items():
        yield from _graph_lines(key, graph)
        for use in functions[key]:
            yield f"  function {use.name}: {use.nodes} nodes, called {use.calls} times"
    for name, file in manifest.files.items():
        yield f"file     {name}  {file.size} bytes  sha256 {file.sha256}"
    for name, stored in manifest.tied.items():
        yield f"tied     {name} = {stored}"


def _graph_lines(key: str, graph: GraphEntry) -> Iterator[str]:
    yield f"graph    {key} ({graph.file})"
    for spec in graph.inputs:
        yield f"  input  {spec}"
    for spec in graph.outputs:
        yield f"  output {spec}"
