"""Counters and histograms for one event loop, shown as Prometheus shows its own; knows nothing of what is counted.

Those of prometheus_client take a lock and walk their buckets at every event, which on a small model was a good part of
what a request cost; these add to a number.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import TypeVar

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

__all__ = ["Count", "Counters", "Distribution", "Histograms"]

_T = TypeVar("_T")


class Count:
    """How often something happened."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0

    def inc(self, count: int = 1) -> None:
        """It happened once more, or several times."""
        self.value += count


class Distribution:
    """How often a value fell into each bucket, and the sum of all."""

    __slots__ = ("_bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        """Begin empty.

        Args:
            bounds: The largest value of each bucket, ascending; what is larger than all falls into one more.
        """
        self._bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float, count: int = 1) -> None:
        """Take in a value that came up once, or several times."""
        self.counts[bisect_left(self._bounds, value)] += count
        self.total += value * count


class Counters(Collector):
    """A family of counts, one for each combination of labels."""

    def __init__(self, name: str, text: str, labels: Sequence[str]) -> None:
        self._described = name, text, labels
        self._children: dict[tuple[str, ...], Count] = {}

    def labels(self, *values: str) -> Count:
        """The count of these labels, made at 0 when first asked for."""
        return self._children.setdefault(values, Count())

    def drop(self, *first: str) -> None:
        """Forget all whose labels begin so."""
        self._children = _without(self._children, first)

    def collect(self) -> Iterator[Metric]:
        """The family as it stands."""
        name, text, labels = self._described
        family = CounterMetricFamily(name, text, labels=labels)
        for values, count in self._children.items():
            family.add_metric(values, count.value)
        yield family


class Histograms(Collector):
    """A family of distributions, one for each combination of labels."""

    def __init__(self, name: str, text: str, labels: Sequence[str], bounds: Sequence[float]) -> None:
        self._described = name, text, labels
        self._bounds = tuple(bounds)
        self._names = [*(repr(float(bound)) for bound in bounds), "+Inf"]
        self._children: dict[tuple[str, ...], Distribution] = {}

    def labels(self, *values: str) -> Distribution:
        """The distribution of these labels, made empty when first asked for."""
        return self._children.setdefault(values, Distribution(self._bounds))

    def drop(self, *first: str) -> None:
        """Forget all whose labels begin so."""
        self._children = _without(self._children, first)

    def collect(self) -> Iterator[Metric]:
        """The family as it stands."""
        name, text, labels = self._described
        family = HistogramMetricFamily(name, text, labels=labels)
        for values, found in self._children.items():
            below = accumulate(found.counts)
            family.add_metric(values, list(zip(self._names, below, strict=True)), found.total)
        yield family


def _without(children: dict[tuple[str, ...], _T], first: tuple[str, ...]) -> dict[tuple[str, ...], _T]:
    return {labels: child for labels, child in children.items() if labels[: len(first)] != first}
