"""A bundle with its weights in fewer bits, kept only if it stays near enough to the original."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from tidemill.bundle.manifest import MANIFEST_FILE
from tidemill.bundle.stored import StoredBundle
from tidemill.engine.instance import Instance
from tidemill.engine.narrowing import KINDS, narrow
from tidemill.engine.precision import OutputError, compare
from tidemill.engine.samples import run_samples
from tidemill.errors import ConfigError, PrecisionLost
from tidemill.protocol.signature import check_inputs
from tidemill.protocol.types import Array

if TYPE_CHECKING:
    from tidemill.bundle.bundle import Bundle

__all__ = ["BOUNDS", "GraphError", "QuantizationReport", "QuantizeOptions", "quantize_bundle"]

BOUNDS = {"float16": 0.01, "bfloat16": 0.03, "int8-dynamic": 0.2, "int4-blockwise": 0.4}
"""The relative error that is accepted if none is stated."""

_RANDOM_SAMPLES = 4


@dataclass(frozen=True, slots=True)
class QuantizeOptions:
    """How to put a bundle into fewer bits.

    Attributes:
        kind: "int8-dynamic", "int4-blockwise", "float16" or "bfloat16".
        max_error: The relative error (see `OutputError`) that no output may exceed; None for that of `BOUNDS`.
        samples: Inputs of the main graph by name, to measure with. Without any they are random, which says little
            about a model of texts: random ids are no language.

    Raises:
        ConfigError: The kind is unknown, or the bound is negative.
    """

    kind: str
    max_error: float | None = None
    samples: Sequence[Mapping[str, Array]] = ()

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ConfigError(f"unknown quantization {self.kind!r}; known are {', '.join(KINDS)}")
        if self.max_error is not None and not self.max_error >= 0:
            raise ConfigError(f"max_error is {self.max_error}; it is a share of the original, 0 or more")

    @property
    def bound(self) -> float:
        """The relative error that is accepted."""
        return BOUNDS[self.kind] if self.max_error is None else self.max_error


@dataclass(frozen=True, slots=True)
class GraphError:
    """The errors of one graph's outputs."""

    graph: str
    outputs: tuple[OutputError, ...]


@dataclass(frozen=True, slots=True)
class QuantizationReport:
    """What fewer bits cost and saved.

    Attributes:
        kind: The kind.
        bound: The relative error that was accepted.
        graphs: The errors by graph.
        samples: "given" or "random".
        bytes_before: The weights' size.
        bytes_after: Their size now.
    """

    kind: str
    bound: float
    graphs: tuple[GraphError, ...]
    samples: str
    bytes_before: int
    bytes_after: int

    @property
    def worst(self) -> float:
        """The largest relative error of an output."""
        return max((error.relative for graph in self.graphs for error in graph.outputs), default=0.0)

    def __str__(self) -> str:
        sizes = f"weights {self.bytes_before} -> {self.bytes_after} bytes"
        lines = [f"{self.kind}: {sizes}, errors on {self.samples} samples (accepted: {self.bound:.2%})"]
        for graph in self.graphs:
            lines += [
                f"  {graph.graph}.{error.name}: relative {error.relative:.3%}, largest {error.largest:.3g}"
                for error in graph.outputs
            ]
        return "\n".join(lines)


def quantize_bundle(source: StoredBundle, target: str | PathLike[str], options: QuantizeOptions) -> QuantizationReport:
    """Write a bundle with the same signature and fewer bits; it appears whole or not at all.

    Args:
        source: The bundle to start from.
        target: The folder to write; a bundle that is there is replaced, be it the source itself.
        options: The kind of quantisation, the bound and the samples.

    Raises:
        PrecisionLost: An output is further from the original than the bound; nothing is written.
        ConfigError: The kind does not apply to this model.
        InvalidArgument: A given sample does not fit the inputs.
        FileExistsError: The target is there and is no bundle.
    """
    from tidemill.bundle.staging import staged_folder  # takes onnx, which serving does without

    for sample in options.samples:
        check_inputs(source.inputs, sample)
    with staged_folder(Path(target).absolute()) as draft:
        written = _rewrite(source, options.kind).write(draft)
        report = _report(source, written, options)
        if report.worst > options.bound:
            raise PrecisionLost(
                f"an output is {report.worst:.2%} away from the original and at most {options.bound:.2%} is accepted, "
                f"so nothing was written\n{report}"
            )
        _record(written, report)
    return report


def _rewrite(source: StoredBundle, kind: str) -> Bundle:
    from tidemill.bundle.bundle import Bundle, GraphPart
    from tidemill.bundle.embedded import load_flat, split_weights

    parts: dict[str, GraphPart] = {}
    weights: dict[str, Array] = {}
    for key, graph in source.manifest.graphs.items():
        model = narrow(kind, load_flat(source, graph.file))
        for name, array in split_weights(model).items():
            held = weights.setdefault(name, array)
            if held.shape != array.shape or held.tobytes() != array.tobytes():
                raise ConfigError(f"weight {name!r} becomes another one in graph {key!r} than in an earlier graph")
        parts[key] = GraphPart(model, graph.inputs, graph.outputs)
    tied = {name: stored for name, stored in source.manifest.tied.items() if stored in weights}
    return Bundle(source.name, parts, weights, tied=tied, source=source.manifest.source)


def _report(source: StoredBundle, written: StoredBundle, options: QuantizeOptions) -> QuantizationReport:
    return QuantizationReport(
        kind=options.kind,
        bound=options.bound,
        graphs=tuple(_graph_error(source, written, key, options.samples) for key in source.manifest.graphs),
        samples="given" if options.samples else "random",
        bytes_before=_weight_bytes(source),
        bytes_after=_weight_bytes(written),
    )


def _graph_error(
    source: StoredBundle, written: StoredBundle, key: str, given: Sequence[Mapping[str, Array]]
) -> GraphError:
    original, other = Instance.open(source, graph=key), Instance.open(written, graph=key)
    is_main = source.manifest.graphs[key] is source.manifest.main
    samples = given if given and is_main else _random_samples(original)
    return GraphError(key, compare(original.run, other.run, original.outputs, samples))


def _random_samples(instance: Instance) -> Iterable[Mapping[str, Array]]:
    for seed in range(_RANDOM_SAMPLES):
        yield run_samples(instance.run, instance.inputs, {}, seed=seed)[0]


def _weight_bytes(bundle: StoredBundle) -> int:
    return sum(entry.size for name, entry in bundle.manifest.files.items())


def _record(written: StoredBundle, report: QuantizationReport) -> None:
    """Say in the manifest what was done, as no cast is to go unseen."""
    made = {**written.manifest.created_with, "quantization": f"{report.kind}, relative error {report.worst:.4f}"}
    text = replace(written.manifest, created_with=made).to_json()
    (written.path / MANIFEST_FILE).write_text(text, encoding="utf-8")
