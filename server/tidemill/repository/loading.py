"""A version's folder brought up step by step: opened, warmed and proved batchable."""

from __future__ import annotations

import logging
import mmap
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from tidemill.bundle.config import ModelConfig
from tidemill.bundle.local import make_local
from tidemill.bundle.manifest import MANIFEST_FILE
from tidemill.bundle.outline import GraphOutline, read_outline
from tidemill.bundle.stored import StoredBundle, open_bundle
from tidemill.engine.artifact import ArtifactCache
from tidemill.engine.batchability import BatchProof, prove_batchable
from tidemill.engine.instance import Instance, InstanceOptions
from tidemill.engine.profiles import DimRange
from tidemill.engine.samples import run_samples, sample_feed
from tidemill.engine.threads import available_threads
from tidemill.errors import ConfigError, TidemillError
from tidemill.protocol.types import Array, TensorSpec
from tidemill.repository.declared import check_declared
from tidemill.repository.isolated import IsolatedInstance
from tidemill.repository.reshaped import ReshapedInstance

__all__ = ["example", "open_instance", "open_version", "read_graph", "warm"]

_LOG = logging.getLogger("tidemill.repository")


def open_version(folder: Path) -> StoredBundle:
    """Open a bundle, or a folder that holds a plain model.onnx as one.

    Raises:
        InvalidBundle: The files are missing or contradict each other.
    """
    if os.path.lexists(folder / MANIFEST_FILE):
        return open_bundle(folder)
    # Reading a signature from ONNX takes the onnx package, which bundles do without.
    from tidemill.bundle.foreign import open_foreign

    return open_foreign(folder)


def read_graph(folder: Path) -> GraphOutline:
    """The nodes and functions of a version's graph, for people to look at.

    Raises:
        InvalidBundle: The files are missing or contradict each other, or the graph is no ONNX model.
    """
    path = open_version(folder).graph_path
    # A plain model.onnx may hold its weights, which nobody looks at: mapped, they are not read.
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        view = memoryview(mapped)
        try:
            return read_outline(view)
        finally:
            view.release()


def open_instance(folder: Path, config: ModelConfig, artifacts: ArtifactCache | None = None) -> Instance:
    """Load a version's graph as its configuration says; weights that lie elsewhere are fetched first.

    Args:
        folder: The version's folder.
        config: The content of model.yaml.
        artifacts: Where optimised graphs are kept; None to optimise at every load.

    Raises:
        LoadFailed: It cannot be fetched or loaded, or not on the providers asked for.
        ConfigError: A provider or one of its options is unknown, or the graph is not what was declared.
    """
    if config.isolation == "process":
        return IsolatedInstance(folder, config, artifacts)
    instance = Instance.open(make_local(open_version(folder)), _instance_options(config, artifacts))
    if config.reshape:
        instance = ReshapedInstance(instance, config.reshape)
    check_declared(config.declared, instance.inputs, instance.outputs)
    return instance


def _instance_options(config: ModelConfig, artifacts: ArtifactCache | None) -> InstanceOptions:
    return InstanceOptions(
        providers=config.providers,
        threads=config.threads or max(1, available_threads() // config.fixed_instances),
        prepack=config.prepack,
        provider_options=config.provider_options,
        allow_fallback=config.allow_fallback,
        shrink_above=config.shrink_above_bytes,
        ranges={name: DimRange(dim.min, dim.opt, dim.max) for name, dim in config.dims.items()},
        artifacts=artifacts,
    )


def example(instance: Instance, config: ModelConfig) -> Mapping[str, Array]:
    """Inputs that the model accepts: the last that `warmup` asks for, or the smallest that can be made up.

    Raises:
        TidemillError: It accepts none.
    """
    if not config.warmup:
        return run_samples(instance.run, instance.inputs, {})[0]
    feed = sample_feed(instance.inputs, _sizes(config.warmup[-1], instance.inputs), size=1)
    instance.run(feed)
    return feed


def warm(instance: Instance, config: ModelConfig) -> BatchProof:
    """Run the model before anybody waits for it, and find out whether it may be batched.

    Raises:
        TidemillError: A run that `warmup` asks for fails. That a model refuses made-up inputs is no fault.
    """
    for given in config.warmup:
        instance.run(sample_feed(instance.inputs, _sizes(given, instance.inputs), size=1))
    if not config.warmup:
        _warm_with_samples(instance)
    if config.max_batch_size == 0:
        return BatchProof(False, "max_batch_size is 0")
    return prove_batchable(instance.run, instance.inputs, instance.outputs)


def _sizes(given: Mapping[str, int | tuple[int, ...]], inputs: Sequence[TensorSpec]) -> dict[str, int]:
    """The sizes of symbolic dims, some of which are given as the shape of an input."""
    specs = {spec.name: spec for spec in inputs}
    sizes = {}
    for name, size in given.items():
        if isinstance(size, int):
            sizes[name] = size
        elif name not in specs or len(size) != len(specs[name].shape):
            told = specs.get(name, f"one of {', '.join(specs)}")
            raise ConfigError(f"warmup: {name!r} is given the shape {list(size)}, expected {told}")
        else:
            sizes.update({dim: one for dim, one in zip(specs[name].shape, size, strict=True) if isinstance(dim, str)})
    return sizes


def _warm_with_samples(instance: Instance) -> None:
    try:
        instance.warm()
    except TidemillError as error:
        _LOG.warning("a model was not warmed, it refuses made-up inputs; set `warmup` in model.yaml: %s", error)
