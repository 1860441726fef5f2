from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.bench.estimates import mean_of, quantile_of, rank_sum_p, ratio_of

NUMBERS = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=300)


@given(NUMBERS, st.floats(0.01, 0.99))
def test_a_quantile_is_numpys_and_lies_in_its_interval(values: list[float], share: float) -> None:
    found = quantile_of(np.array(values), share)
    assert found.value == np.quantile(values, share)
    assert min(values) <= found.low <= found.value <= found.high <= max(values)
    assert {found.low, found.high} <= set(values)


@given(NUMBERS, st.randoms())
def test_order_does_not_matter(values: list[float], random: object) -> None:
    shuffled = values[:]
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert quantile_of(np.array(values), 0.9) == quantile_of(np.array(shuffled), 0.9)


@pytest.mark.parametrize("share", [0.5, 0.9, 0.99])
def test_the_interval_of_a_quantile_holds_the_true_one_as_often_as_it_says(share: float) -> None:
    rng, truth = np.random.default_rng(1), -math.log(1 - share)
    found = [quantile_of(rng.exponential(1.0, 2000), share) for _ in range(400)]
    assert 0.92 <= np.mean([it.low <= truth <= it.high for it in found]) <= 0.99


def test_the_interval_of_a_mean_holds_the_true_one_as_often_as_it_says() -> None:
    rng = np.random.default_rng(2)
    found = [mean_of(rng.normal(10, 3, 12).tolist()) for _ in range(1000)]
    assert 0.93 <= np.mean([it.low <= 10 <= it.high for it in found]) <= 0.97


def test_one_figure_has_no_interval() -> None:
    found = mean_of([3.0])
    assert (found.low, found.value, found.high) == (3.0, 3.0, 3.0)


# The 97.5 % quantiles of Student's t, from printed tables.
@pytest.mark.parametrize(("count", "student"), [(2, 12.706), (3, 4.303), (4, 3.182), (11, 2.228), (31, 2.042)])
def test_the_interval_of_a_mean_is_students(count: int, student: float) -> None:
    values = np.arange(count, dtype=float)
    reach = mean_of(values.tolist()).high - values.mean()
    assert reach == pytest.approx(student * values.std(ddof=1) / math.sqrt(count), rel=0.02)


_HALVES = np.array(list(itertools.combinations(range(12), 6)))


def _exact_p(ones: list[float], others: list[float]) -> float:
    """Mann-Whitney of six against six by counting all ways of dealing the values out."""
    both = np.array([*ones, *others])
    ranks = np.array([(both < it).sum() + ((both == it).sum() + 1) / 2 for it in both])
    away = np.abs(ranks[_HALVES].sum(axis=1) - ranks.sum() / 2)
    return float(np.mean(away >= away[0] - 1e-9))


@given(st.lists(st.floats(0, 1), min_size=12, max_size=12, unique=True))
def test_the_rank_sum_test_agrees_with_counting(values: list[float]) -> None:
    assert rank_sum_p(values[:6], values[6:]) == pytest.approx(_exact_p(values[:6], values[6:]), abs=0.03)


def test_the_rank_sum_test_agrees_with_counting_where_some_are_equal() -> None:
    ones, others = [1.0, 2, 2, 3, 5, 8], [2.0, 4, 5, 6, 7, 9]
    assert rank_sum_p(ones, others) == pytest.approx(_exact_p(ones, others), abs=0.03)


def test_the_rank_sum_test_is_symmetric_and_knows_equals() -> None:
    assert rank_sum_p([1, 2, 3, 4], [3, 4, 5, 6]) == rank_sum_p([3, 4, 5, 6], [1, 2, 3, 4])
    assert rank_sum_p([1, 1, 1], [1, 1, 1]) == 1.0
    assert rank_sum_p(list(range(30)), list(range(100, 130))) < 1e-6


def test_a_ratio_is_that_of_medians_within_its_interval() -> None:
    rng = np.random.default_rng(0)
    ones, others = rng.normal(100, 2, 30).tolist(), rng.normal(150, 3, 30).tolist()
    found = ratio_of(ones, others)
    assert found.value == np.median(others) / np.median(ones)
    assert 1.4 < found.low < found.value < found.high < 1.6
