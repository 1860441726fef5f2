"""Figures with their confidence intervals, and whether two runs differ: statistics over numbers, nothing else.

All intervals are for 95 %.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

__all__ = ["Estimate", "mean_of", "quantile_of", "rank_sum_p", "ratio_of"]

Numbers = npt.NDArray[np.float64]

_Z = NormalDist().inv_cdf(0.975)
_RESAMPLES = 2000


@dataclass(frozen=True, slots=True)
class Estimate:
    """A figure, and between what it lies with 95 % confidence."""

    value: float
    low: float
    high: float


def quantile_of(values: Numbers, share: float) -> Estimate:
    """A quantile of a sample in any order, with the interval that the binomial distribution gives to its rank.

    The number of values below the true quantile is binomial, whatever the distribution; so the order statistics at
    `n q -+ 1.96 sqrt(n q (1 - q))` enclose it (Conover, Practical Nonparametric Statistics, 3.2). The interval reaches
    the extremes where there are too few values to say more. Requests that queue behind each other are not
    independent, so it is on the narrow side under heavy load.

    Args:
        values: At least one number.
        share: Between 0 and 1.
    """
    ordered = np.sort(values)
    count = len(ordered)
    reach = _Z * math.sqrt(count * share * (1 - share))
    # Ranks count from 1, places from 0.
    low, high = math.floor(count * share - reach) - 1, math.ceil(count * share + reach)
    last = count - 1
    return Estimate(
        float(np.quantile(ordered, share)), float(ordered[min(max(low, 0), last)]), float(ordered[min(high, last)])
    )


def mean_of(slices: Sequence[float]) -> Estimate:
    """The mean of figures of equal stretches of time, with the interval that their spread gives it.

    One figure gives no interval: it is then its own.
    """
    values = np.asarray(slices, np.float64)
    mean = float(values.mean())
    if len(values) < 2:
        return Estimate(mean, mean, mean)
    reach = _student(len(values) - 1) * float(values.std(ddof=1)) / math.sqrt(len(values))
    return Estimate(mean, mean - reach, mean + reach)


def _student(freedom: int) -> float:
    """The 97.5 % quantile of Student's t by Hill's expansion (1970), within 2 % from 3 degrees of freedom on."""
    g1 = (_Z**3 + _Z) / 4
    g2 = (5 * _Z**5 + 16 * _Z**3 + 3 * _Z) / 96
    g3 = (3 * _Z**7 + 19 * _Z**5 + 17 * _Z**3 - 15 * _Z) / 384
    exact = {1: 12.706, 2: 4.303}
    return exact.get(freedom, _Z + g1 / freedom + g2 / freedom**2 + g3 / freedom**3)


def ratio_of(ones: Sequence[float], others: Sequence[float], seed: int = 0) -> Estimate:
    """The median of `others` over the median of `ones`, its interval by resampling both (bootstrap, percentiles)."""
    rng = np.random.default_rng(seed)
    a, b = np.asarray(ones, np.float64), np.asarray(others, np.float64)
    medians = [np.median(rng.choice(it, (_RESAMPLES, len(it))), axis=1) for it in (a, b)]
    low, high = np.quantile(medians[1] / medians[0], [0.025, 0.975])
    return Estimate(float(np.median(b) / np.median(a)), float(low), float(high))


def rank_sum_p(ones: Sequence[float], others: Sequence[float]) -> float:
    """How likely two samples of one source differ this much in rank: Mann-Whitney U, two-sided.

    The normal approximation with ties and continuity corrected (Mann and Whitney, 1947; Lehmann, Nonparametrics, 1.2):
    good from about 8 values a side on.
    """
    a, b = np.asarray(ones, np.float64), np.asarray(others, np.float64)
    both = np.concatenate([a, b])
    _, places, counts = np.unique(both, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[places]
    n, m, total = len(a), len(b), len(both)
    u = float(ranks[:n].sum()) - n * (n + 1) / 2
    ties = float((counts**3 - counts).sum()) / (total * (total - 1)) if total > 1 else 0.0
    variance = n * m / 12 * (total + 1 - ties)
    if variance <= 0:
        return 1.0
    z = max(0.0, abs(u - n * m / 2) - 0.5) / math.sqrt(variance)
    return min(1.0, 2 * (1 - NormalDist().cdf(z)))
