from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.bench import Generator, Range, Sizes
from tidemill.dtype import DType
from tidemill.errors import ConfigError
from tidemill.protocol.types import TensorSpec

IDS, MASK = (TensorSpec(name, DType.int64, ("", "")) for name in ("input_ids", "attention_mask"))


@pytest.mark.parametrize(
    ("text", "low", "high"),
    [
        ("64", 64, 64),
        ("8:64", 8, 64),
        ("8/64/256", 8, 256),
        ("normal:64:4", 30, 98),
        ("lognormal:64:0.2", 20, 200),
        ("exponential:20", 1, 400),
    ],
)
def test_sizes_stay_where_they_belong(text: str, low: int, high: int) -> None:
    sizes, rng = Sizes.parse(text), np.random.default_rng(0)
    drawn = [sizes.draw(rng) for _ in range(2000)]
    assert low <= min(drawn) <= max(drawn) <= high
    assert (len(set(drawn)) > 1) == (low != high)


def test_a_choice_draws_each_of_its_sizes_and_nothing_else() -> None:
    sizes, rng = Sizes.parse("8/64/256"), np.random.default_rng(0)
    assert {sizes.draw(rng) for _ in range(200)} == {8, 64, 256}


@pytest.mark.parametrize("text", ["", "x", "8:", "64:8", "1:2:3", "8/", "normal:64", "1.5:2", "-1", "normal:a:b"])
def test_what_is_no_size_is_told_with_the_forms(text: str) -> None:
    with pytest.raises(ConfigError, match=r"known forms are 64, 8:64"):
        Sizes.parse(text)


@given(st.integers(1, 50), st.integers(0, 50), st.integers(0, 2**32))
def test_dims_of_one_name_agree_and_ids_stay_in_range(low: int, more: int, seed: int) -> None:
    generator = Generator([IDS, MASK], {"seq": Sizes.parse(f"{low}:{low + more}")}, {"input_ids": Range(5, 9)})
    for feed in generator.requests(seed, 20):
        assert feed["input_ids"].shape == feed["attention_mask"].shape
        assert low <= feed["input_ids"].shape[1] <= low + more
        assert feed["input_ids"].shape[0] == 1
        assert 5 <= feed["input_ids"].min() <= feed["input_ids"].max() <= 9
        assert (feed["attention_mask"] == 1).all()


def test_the_same_seed_draws_the_same() -> None:
    generator = Generator([IDS, MASK], {"seq": Sizes.parse("8:64")})
    one, other, third = (generator.requests(seed, 5) for seed in (1, 1, 2))
    assert all(np.array_equal(a["input_ids"], b["input_ids"]) for a, b in zip(one, other, strict=True))
    assert [it["input_ids"].shape for it in one] != [it["input_ids"].shape for it in third]


@pytest.mark.parametrize("dtype", list(DType))
def test_every_dtype_has_values_of_its_own(dtype: DType) -> None:
    (feed,) = Generator([TensorSpec("x", dtype, ("", 3))], {"batch": Sizes.parse("4")}).requests(0, 1)
    assert feed["x"].shape == (4, 3)
    assert feed["x"].dtype == dtype.to_numpy()
    assert dtype is not DType.string or all(isinstance(it, bytes) for it in feed["x"].ravel())


def test_an_axis_may_be_named_by_input() -> None:
    specs = [TensorSpec("a", DType.float32, ("", "")), TensorSpec("b", DType.float32, ("", ""))]
    (feed,) = Generator(specs, {"a.1": Sizes.parse("7"), "b.1": Sizes.parse("9")}).requests(0, 1)
    assert (feed["a"].shape, feed["b"].shape) == ((1, 7), (1, 9))


@pytest.mark.parametrize(
    ("shapes", "ranges", "part"),
    [
        ({"seq": "8", "sqe": "9"}, {}, "'seq', 'sqe'; free dims are attention_mask.0"),
        ({"input_ids.7": "8"}, {}, "'input_ids.7'"),
        ({}, {"inputs": "0:1"}, "input 'inputs'; the model has input_ids, attention_mask"),
    ],
)
def test_a_name_that_is_not_the_models_is_told(shapes: dict[str, str], ranges: dict[str, str], part: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Generator(
            [IDS, MASK],
            {name: Sizes.parse(text) for name, text in shapes.items()},
            {name: Range.parse(text) for name, text in ranges.items()},
        )
    assert part in str(caught.value)


@pytest.mark.parametrize("text", ["", "a:b", "9:5", "0:inf", "nan:1"])
def test_what_is_no_range_is_told(text: str) -> None:
    with pytest.raises(ConfigError, match="range"):
        Range.parse(text)
