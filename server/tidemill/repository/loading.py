"""A version's folder brought up step by step: opened, warmed, proved batchable and put behind a batcher."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

from tidemill.batching.batcher import Batcher
from tidemill.batching.options import BatchingOptions
from tidemill.batching.record import Observer
from tidemill.bundle.config import ModelConfig
from tidemill.bundle.local import make_local
from tidemill.bundle.manifest import MANIFEST_FILE
from tidemill.bundle.stored import StoredBundle, open_bundle
from tidemill.engine.artifact import ArtifactCache
from tidemill.engine.batchability import BatchProof, prove_batchable
from tidemill.engine.instance import Instance, InstanceOptions
from tidemill.engine.profiles import DimRange
from tidemill.engine.samples import sample_feed
from tidemill.errors import TidemillError
from tidemill.repository.running import RunningModel

__all__ = ["open_instance", "open_version", "start", "warm"]

_LOG = logging.getLogger("tidemill.repository")


def open_version(folder: Path) -> StoredBundle:
    """Open a bundle, or a folder that holds a plain model.onnx as one.

    Raises:
        InvalidBundle: The files are missing or contradict each other.
    """
    if (folder / MANIFEST_FILE).is_file():
        return open_bundle(folder)
    # Reading a signature from ONNX takes the onnx package, which bundles do without.
    from tidemill.bundle.foreign import open_foreign

    return open_foreign(folder)


def open_instance(folder: Path, config: ModelConfig, artifacts: ArtifactCache | None = None) -> Instance:
    """Load a version's graph as its configuration says; weights that lie elsewhere are fetched first.

    Args:
        folder: The version's folder.
        config: The content of model.yaml.
        artifacts: Where optimised graphs are kept; None to optimise at every load.

    Raises:
        LoadFailed: It cannot be fetched or loaded, or not on the providers asked for.
        ConfigError: A provider or one of its options is unknown.
    """
    return Instance.open(make_local(open_version(folder)), _instance_options(config, artifacts))


def _instance_options(config: ModelConfig, artifacts: ArtifactCache | None) -> InstanceOptions:
    return InstanceOptions(
        providers=config.providers,
        threads=config.threads,
        prepack=config.prepack,
        provider_options=config.provider_options,
        allow_fallback=config.allow_fallback,
        shrink_above=config.shrink_above_bytes,
        ranges={name: DimRange(dim.min, dim.opt, dim.max) for name, dim in config.dims.items()},
        artifacts=artifacts,
    )


def warm(instance: Instance, config: ModelConfig) -> BatchProof:
    """Run the model before anybody waits for it, and find out whether it may be batched.

    Raises:
        TidemillError: A run that `warmup` asks for fails. That a model refuses made-up inputs is no fault.
    """
    for sizes in config.warmup:
        instance.run(sample_feed(instance.inputs, sizes, size=1))
    if not config.warmup:
        _warm_with_samples(instance)
    if config.max_batch_size == 0:
        return BatchProof(False, "max_batch_size is 0")
    return prove_batchable(instance.run, instance.inputs, instance.outputs)


def start(
    instance: Instance,
    proof: BatchProof,
    config: ModelConfig,
    observer: Observer | None,
    clock: Callable[[], float],
) -> RunningModel:
    """Put a warm instance behind a batcher on the running event loop.

    Raises:
        ConfigError: The batching options contradict each other.
    """
    options = _batching_options(config, proof)
    batcher = Batcher(instance.run, options, instances=config.instances, clock=clock, observer=observer)
    if not proof.batchable or config.max_batch_size is not None:
        return RunningModel(instance, proof, batcher)
    # A limit that nobody asked for says how far requests are joined, not how large one may be.
    alone = BatchingOptions(max_batch_size=0, max_queue_size=options.max_queue_size)
    large = Batcher(instance.run, alone, clock=clock, observer=observer)
    return RunningModel(instance, proof, batcher, large=(options.max_batch_size + 1, large))


def _warm_with_samples(instance: Instance) -> None:
    try:
        instance.warm()
    except TidemillError as error:
        _LOG.warning("a model was not warmed, it refuses made-up inputs; set `warmup` in model.yaml: %s", error)


def _batching_options(config: ModelConfig, proof: BatchProof) -> BatchingOptions:
    batching = config.batching
    if not proof.batchable:
        return BatchingOptions(max_batch_size=0, max_queue_size=batching.max_queue_size)
    limits = {} if config.max_batch_size is None else {"max_batch_size": config.max_batch_size}
    return BatchingOptions(
        **limits,
        max_queue_delay=batching.max_queue_delay_microseconds / 1e6,
        max_queue_size=batching.max_queue_size,
        preferred_batch_sizes=batching.preferred_batch_size,
    )
