"""A bundle's graph loaded and ready to run batches; knows neither requests nor how batches are made."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tidemill.bundle.stored import StoredBundle
from tidemill.engine.artifact import ArtifactCache, LoadedGraph, load_graph
from tidemill.engine.custom_ops import resolve_libraries
from tidemill.engine.placement import Placement
from tidemill.engine.profiles import DimRange, tensorrt_profiles
from tidemill.engine.provider_options import OptionValue, check_provider_options
from tidemill.engine.providers import TENSORRT_PROVIDER, resolve_providers
from tidemill.engine.samples import run_samples
from tidemill.engine.session import Cancel
from tidemill.engine.session_options import SessionOptions
from tidemill.engine.source import find_graph
from tidemill.errors import InvalidBundle
from tidemill.protocol.types import Array, TensorSpec

__all__ = ["Instance", "InstanceOptions"]


@dataclass(frozen=True, slots=True)
class InstanceOptions:
    """Where and how a model runs.

    Attributes:
        providers: "cpu", "cuda", "tensorrt" or full names, in order of preference; empty means the CPU.
        threads: Threads of one run; None for as many as there are CPUs to use.
        prepack: See `SessionOptions.prepack`.
        provider_options: Values by option by provider: `{"cuda": {"gpu_mem_limit": 2 << 30}}`.
        allow_fallback: Whether a provider that cannot be started is done without, with a warning.
        shrink_above: See `SessionOptions.shrink_above`.
        ranges: The sizes that symbolic dims take, by name; TensorRT builds for these.
        custom_ops: Libraries with operators; native code, so never from a request.
        artifacts: Where optimised graphs are kept; None to optimise at every load.
    """

    providers: tuple[str, ...] = ()
    threads: int | None = None
    prepack: bool = True
    provider_options: Mapping[str, Mapping[str, OptionValue]] = field(default_factory=dict)
    allow_fallback: bool = False
    shrink_above: int = 0
    ranges: Mapping[str, DimRange] = field(default_factory=dict)
    custom_ops: tuple[Path, ...] = ()
    artifacts: ArtifactCache | None = None


class Instance:
    """One loaded model. A single one serves any number of threads, so a model needs one for each device only.

    Attributes:
        session: The session behind it.
        inputs: The bundle's inputs.
        outputs: The bundle's outputs.
        providers: What the model really runs on, by full names.
        threads: Threads of one run.
        artifact: Where the optimised graph came from, see `LoadedGraph.artifact`.
        key: What its kernels follow from, see `LoadedGraph.key`.
    """

    def __init__(self, loaded: LoadedGraph, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]) -> None:
        self.session = loaded.session
        self.inputs = tuple(inputs)
        self.outputs = tuple(outputs)
        self.providers = loaded.session.providers
        self.threads = loaded.session.threads
        self.artifact, self.key = loaded.artifact, loaded.key
        self._held: tuple[object, ...] = ()

    @classmethod
    def open(cls, bundle: StoredBundle, options: InstanceOptions | None = None, graph: str | None = None) -> Instance:
        """Load a graph of a bundle.

        Args:
            bundle: The bundle.
            options: Where and how it runs.
            graph: The graph's key; the main graph if not given.

        Raises:
            ConfigError: A provider, one of its options, a graph or a range is unknown or wrong.
            LoadFailed: The graph cannot be loaded, or not on the providers asked for.
            InvalidBundle: The graph's inputs or outputs are not those that the bundle declares.
        """
        options = options or InstanceOptions()
        entry = find_graph(bundle, graph)
        loaded = load_graph(bundle, entry, _session_options(options, entry.inputs), options.artifacts)
        _check_signature("inputs", entry.inputs, loaded.session.inputs)
        _check_signature("outputs", entry.outputs, loaded.session.outputs)
        instance = cls(loaded, entry.inputs, entry.outputs)
        # Fetched files stay in the cache for as long as the session maps them.
        instance._held = bundle.held
        return instance

    @property
    def placement(self) -> Placement:
        """How many of the model's nodes each provider executes."""
        return self.session.placement

    def run(self, feed: Mapping[str, Array], cancel: Cancel | None = None) -> dict[str, Array]:
        """Run the model on arrays by input name; see `OrtSession.run`."""
        return self.session.run(feed, cancel=cancel)

    def warm(self, clock: Callable[[], float] = time.perf_counter) -> float:
        """Run generated inputs twice, as first runs allocate and compile.

        Returns:
            Seconds of the second run, of the smallest inputs that the model accepts.

        Raises:
            TidemillError: The model cannot be run with generated inputs.
        """
        feed, _ = run_samples(self.run, self.inputs, {})
        start = clock()
        self.run(feed)
        return clock() - start

    def watch(self, on_end: Callable[[str], None]) -> None:
        """Be told why the model ended by itself, which one that runs in this process never does."""

    def close(self) -> None:
        """End what runs outside of this process; nothing here."""


def _session_options(options: InstanceOptions, inputs: Sequence[TensorSpec]) -> SessionOptions:
    providers = resolve_providers(options.providers)
    values = check_provider_options(options.provider_options, providers)
    if TENSORRT_PROVIDER in providers:
        profiles = tensorrt_profiles(inputs, options.ranges)
        values[TENSORRT_PROVIDER] = profiles | _engine_cache(options.artifacts) | values.get(TENSORRT_PROVIDER, {})
    return SessionOptions(
        providers=providers,
        threads=options.threads or 0,
        prepack=options.prepack,
        custom_ops=resolve_libraries(options.custom_ops),
        provider_options=values,
        allow_fallback=options.allow_fallback,
        shrink_above=options.shrink_above,
    )


def _engine_cache(cache: ArtifactCache | None) -> dict[str, str]:
    """TensorRT names its engines by model, shapes, version and GPU itself; all it needs is a folder."""
    if cache is None:
        return {}
    folder = str(cache.directory / "tensorrt")
    return {
        "trt_engine_cache_enable": "1",
        "trt_engine_cache_path": folder,
        "trt_timing_cache_enable": "1",
        "trt_timing_cache_path": folder,
    }


def _check_signature(kind: str, declared: Sequence[TensorSpec], actual: Sequence[TensorSpec]) -> None:
    """Names, dtypes and ranks must agree; symbols may be named otherwise."""
    promised = {spec.name: (spec.dtype, len(spec.shape)) for spec in declared}
    found = {spec.name: (spec.dtype, len(spec.shape)) for spec in actual}
    if promised != found:
        raise InvalidBundle(
            f"the bundle declares the {kind} {', '.join(map(str, declared)) or 'none'}, "
            f"its graph has {', '.join(map(str, actual)) or 'none'}; write the bundle again"
        )
