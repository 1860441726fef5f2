"""How far one form of a model is from another, on the same inputs; knows neither quantisation nor files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from tidemill.protocol.types import Array, TensorSpec

__all__ = ["OutputError", "compare"]

_Runner: TypeAlias = Callable[[Mapping[str, Array]], Mapping[str, Array]]


@dataclass(frozen=True, slots=True)
class OutputError:
    """The difference in one output.

    Attributes:
        name: The output.
        relative: The norm of the difference over the norm of the original, over all samples together; infinite if
            numbers that were finite no longer are. For whole numbers, the share of elements that differ.
        largest: The largest difference of one element.
    """

    name: str
    relative: float
    largest: float


def compare(
    original: _Runner, other: _Runner, outputs: Sequence[TensorSpec], samples: Iterable[Mapping[str, Array]]
) -> tuple[OutputError, ...]:
    """Run both on every sample.

    Args:
        original: Runs the model; arrays by name in and out.
        other: The same for its other form.
        outputs: What to compare.
        samples: Inputs by name.

    Raises:
        TidemillError: One of them cannot be run on a sample.
    """
    pairs: dict[str, list[tuple[Array, Array]]] = {spec.name: [] for spec in outputs}
    for feed in samples:
        expected, given = original(feed), other(feed)
        for name, found in pairs.items():
            found.append((expected[name], given[name]))
    return tuple(_error(spec, pairs[spec.name]) for spec in outputs)


def _error(spec: TensorSpec, pairs: Sequence[tuple[Array, Array]]) -> OutputError:
    if any(expected.shape != given.shape for expected, given in pairs):
        return OutputError(spec.name, float("inf"), float("inf"))
    if not spec.dtype.is_float():
        different = [expected != given for expected, given in pairs]
        share = sum(int(flags.sum()) for flags in different) / max(1, sum(flags.size for flags in different))
        return OutputError(spec.name, share, float(share > 0))
    wide = [(expected.astype(np.float64).ravel(), given.astype(np.float64).ravel()) for expected, given in pairs]
    expected, given = (np.concatenate(side) if side else np.zeros(0) for side in zip(*wide, strict=True))
    kept = np.isfinite(expected)
    if not np.isfinite(given[kept]).all():
        return OutputError(spec.name, float("inf"), float("inf"))
    difference = np.abs(given[kept] - expected[kept])
    norm = float(np.linalg.norm(expected[kept]))
    relative = float(np.linalg.norm(difference)) / norm if norm else float(difference.any())
    return OutputError(spec.name, relative, float(difference.max(initial=0.0)))
