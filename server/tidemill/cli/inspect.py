"""`tidemill inspect`: what a bundle promises, and what becomes of it when it is loaded, as text."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidemill.bundle.expansion import FunctionUse
    from tidemill.bundle.manifest import BundleManifest, GraphEntry
    from tidemill.bundle.stored import StoredBundle

__all__ = ["add_arguments", "execute"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("bundle", type=Path, help="a version's folder: <repository>/<model>/<version>")
    parser.add_argument("--load", action="store_true", help="load it as its model.yaml says, and tell where it runs")
    parser.add_argument("--artifacts", type=Path, metavar="DIR", help="with --load: where optimised graphs are kept")


def execute(args: argparse.Namespace) -> int:
    """Show a bundle's signature, functions, weights and files; with --load, where it runs and what memory it takes."""
    from tidemill.bundle.expansion import function_uses
    from tidemill.bundle.skeleton import read_skeleton
    from tidemill.repository.loading import open_version

    bundle = open_version(args.bundle)
    functions = {
        key: function_uses(read_skeleton((bundle.path / graph.file).read_bytes()))
        for key, graph in bundle.manifest.graphs.items()
    }
    print("\n".join([*_lines(bundle.manifest, functions), *_weight_lines(bundle)]))
    if args.load:
        print("\n".join(_load(args.bundle, args.artifacts)))
    return 0


def _lines(manifest: BundleManifest, functions: Mapping[str, Sequence[FunctionUse]]) -> Iterator[str]:
    from tidemill.weights.location import shown

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
        if file.url:
            yield f"  from   {shown(file.url)}"
    for name, stored in manifest.tied.items():
        yield f"tied     {name} = {stored}"
    for given, became in manifest.converted.items():
        yield f"changed  {given} to {became}, as was asked for"


def _graph_lines(key: str, graph: GraphEntry) -> Iterator[str]:
    yield f"graph    {key} ({graph.file})"
    for spec in graph.inputs:
        yield f"  input  {spec}"
    for spec in graph.outputs:
        yield f"  output {spec}"


def _weight_lines(bundle: StoredBundle) -> Iterator[str]:
    """What lies in weight files is mapped from them; what lies in a graph is read into memory."""
    from tidemill.weights.cache import Cache
    from tidemill.weights.header import read_header

    absent = set(bundle.absent)
    held = Cache.from_environment() if absent else None
    for name, file in bundle.manifest.files.items():
        if name in absent and held:
            there = (held.root / "blobs" / file.sha256).is_file()
            yield f"weights  {name}: {file.size:,} bytes, {'in' if there else 'not in'} the cache {held.root}"
        elif name.endswith(".safetensors"):
            tensors = read_header(bundle.path / name).tensors.values()
            yield f"weights  {name}: {len(tensors)} tensors, {sum(t.length for t in tensors):,} bytes, mapped"
    for graph in bundle.manifest.graphs.values():
        size = (bundle.path / graph.file).stat().st_size
        yield f"weights  {graph.file}: what stands in the graph itself is private, {size:,} bytes at most"


def _load(folder: Path, artifacts: Path | None) -> Iterator[str]:
    from tidemill.bundle.config import ModelConfig, load_config
    from tidemill.engine.artifact import ArtifactCache
    from tidemill.repository.loading import open_instance

    settings = folder.absolute().parent / "model.yaml"
    config = load_config(settings) if settings.is_file() else ModelConfig()
    before = _private_bytes()
    instance = open_instance(folder, config, ArtifactCache(artifacts) if artifacts else None)
    after = _private_bytes()
    yield f"runs on  {', '.join(instance.providers)}, {instance.threads} thread(s) a run"
    yield f"nodes    {instance.placement}"
    yield f"artifact {instance.artifact}"
    if before is not None and after is not None:
        packed = ", copies of matrices among them (prepack: false does without)" if config.prepack else ""
        yield f"memory   {max(after - before, 0):,} bytes private{packed}"


def _private_bytes() -> int | None:
    """What this process holds that is in no file; None where the kernel does not tell."""
    try:
        lines = Path("/proc/self/smaps_rollup").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("Anonymous:")), None)
