"""A bundle's graph loaded and ready to run batches; knows neither requests nor how batches are made."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tidemill.bundle.stored import StoredBundle
from tidemill.engine.providers import resolve_providers
from tidemill.engine.samples import run_samples
from tidemill.engine.session import OrtSession, SessionOptions, open_session
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
    """

    providers: tuple[str, ...] = ()
    threads: int | None = None
    prepack: bool = True


class Instance:
    """One loaded model. A single one serves any number of threads, so a model needs one for each device only.

    Attributes:
        inputs: The bundle's inputs.
        outputs: The bundle's outputs.
        providers: What the model really runs on, by full names.
        threads: Threads of one run.
    """

    def __init__(self, session: OrtSession, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]) -> None:
        self._session = session
        self.inputs = tuple(inputs)
        self.outputs = tuple(outputs)
        self.providers = session.providers
        self.threads = session.threads

    @classmethod
    def open(cls, bundle: StoredBundle, options: InstanceOptions | None = None) -> Instance:
        """Load a bundle's main graph.

        Raises:
            ConfigError: A provider's name is unknown.
            LoadFailed: The graph cannot be loaded, or not on the providers asked for.
            InvalidBundle: The graph's inputs or outputs are not those that the bundle declares.
        """
        options = options or InstanceOptions()
        session = open_session(
            bundle.graph_path,
            SessionOptions(resolve_providers(options.providers), options.threads or 0, options.prepack),
        )
        _check_signature("inputs", bundle.inputs, session.inputs)
        _check_signature("outputs", bundle.outputs, session.outputs)
        return cls(session, bundle.inputs, bundle.outputs)

    def run(self, feed: Mapping[str, Array]) -> dict[str, Array]:
        """Run the model on arrays by input name; see `OrtSession.run`."""
        return self._session.run(feed)

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


def _check_signature(kind: str, declared: Sequence[TensorSpec], actual: Sequence[TensorSpec]) -> None:
    """Names, dtypes and ranks must agree; symbols may be named otherwise."""
    promised = {spec.name: (spec.dtype, len(spec.shape)) for spec in declared}
    found = {spec.name: (spec.dtype, len(spec.shape)) for spec in actual}
    if promised != found:
        raise InvalidBundle(
            f"the bundle declares the {kind} {', '.join(map(str, declared)) or 'none'}, "
            f"its graph has {', '.join(map(str, actual)) or 'none'}; write the bundle again"
        )
