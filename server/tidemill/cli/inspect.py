"""`tidemill inspect`: what a bundle promises, as text."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidemill.bundle.manifest import BundleManifest, GraphEntry

__all__ = ["add_arguments", "execute"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("bundle", type=Path, help="a version's folder: <repository>/<model>/<version>")


def execute(args: argparse.Namespace) -> int:
    """Show a bundle's signature and files."""
    from tidemill.repository.loading import open_version

    print("\n".join(_lines(open_version(args.bundle).manifest)))
    return 0


def _lines(manifest: BundleManifest) -> Iterator[str]:
    yield f"name     {manifest.name}"
    if manifest.source:
        yield f"source   {manifest.source}"
    yield f"opset    {manifest.opset}"
    yield "written  " + ", ".join(f"{package} {version}" for package, version in manifest.created_with.items())
    for key, graph in manifest.graphs.items():
        yield from _graph_lines(key, graph)
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
