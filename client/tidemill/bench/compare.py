"""Two reports held against each other: ratios, and whether they are more than chance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tidemill.bench.estimates import Estimate, rank_sum_p, ratio_of
from tidemill.bench.result import Report, Result
from tidemill.bench.settings import Load
from tidemill.errors import ConfigError

__all__ = ["Change", "compare"]

_LEVEL = 0.01
_FEWEST = 5
_FIGURES = {"rows/s": ("rate", True), "p50 ms": ("p50", False), "p99 ms": ("p99", False)}


@dataclass(frozen=True, slots=True)
class Change:
    """One figure of one load in two reports.

    Attributes:
        load: What both measured.
        figure: "rows/s", "p50 ms" or "p99 ms".
        before: The median over the slices of the first report.
        after: That of the second.
        ratio: The second over the first.
        p: How likely slices of one source differ this much (Mann-Whitney).
        more_is_better: Whether a ratio above 1 is good.
    """

    load: Load
    figure: str
    before: float
    after: float
    ratio: Estimate
    p: float
    more_is_better: bool

    @property
    def verdict(self) -> str:
        """One of "better", "worse" and "same", where the last says only that no difference was shown."""
        if self.p >= _LEVEL or self.ratio.low <= 1 <= self.ratio.high:
            return "same"
        return "better" if (self.ratio.value > 1) == self.more_is_better else "worse"


def compare(before: Report, after: Report) -> list[Change]:
    """The changes of the loads that both reports have.

    Slices of one run are of one state of the machine: a difference between two runs may come from the machine, and
    only runs side by side, repeated, tell of the servers.

    Raises:
        ConfigError: No load was measured in both.
    """
    others = {result.load: result for result in after.results}
    pairs = [(result, others[result.load]) for result in before.results if result.load in others]
    if not pairs:
        loads = [", ".join(str(result.load) for result in report.results) for report in (before, after)]
        raise ConfigError(f"the reports have no load in common: {loads[0]}; and {loads[1]}")
    return [change for pair in pairs for change in _changes(*pair)]


def _changes(before: Result, after: Result) -> list[Change]:
    found = []
    for figure, (name, more_is_better) in _FIGURES.items():
        ones, others = getattr(before.slices, name), getattr(after.slices, name)
        if min(len(ones), len(others)) >= _FEWEST and _mostly_positive(ones):
            ratio = ratio_of(ones, others)
            middle = sorted(ones)[len(ones) // 2]
            p = rank_sum_p(ones, others)
            found.append(Change(before.load, figure, middle, middle * ratio.value, ratio, p, more_is_better))
    return found


def _mostly_positive(values: Sequence[float]) -> bool:
    """Whether medians of the values can be divided by; a slice in which all stood still does not hinder that."""
    return 4 * sum(value > 0 for value in values) >= 3 * len(values)
