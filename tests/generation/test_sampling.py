from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.errors import InvalidArgument
from tidemill.generation.request import SamplingOptions
from tidemill.generation.sampling import Sampler


def normal(size: int, seed: int = 0, scale: float = 2.0) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal(size) * scale).astype(np.float32)


def probabilities(logits: np.ndarray, options: SamplingOptions) -> np.ndarray:
    """The distribution, by sorting everything."""
    scaled = logits.astype(np.float64) / options.temperature
    order = np.argsort(-scaled, kind="stable")
    if options.top_k > 0:
        order = order[: options.top_k]
    # Shares for top_p are those of what top_k left; min_p compares with the most probable token.
    weights = np.exp(scaled[order] - scaled.max())
    shares = weights / weights.sum()
    before = np.cumsum(shares) - shares
    kept = (before < options.top_p) & (weights >= options.min_p)
    result = np.zeros(len(logits))
    result[order[kept]] = weights[kept] / weights[kept].sum()
    return result


@pytest.mark.parametrize(
    "options",
    [
        SamplingOptions(),
        SamplingOptions(temperature=0.5),
        SamplingOptions(temperature=1.7, top_k=5),
        SamplingOptions(top_p=0.6),
        SamplingOptions(top_p=0.9, min_p=0.05),
        SamplingOptions(top_k=8, top_p=0.7, temperature=0.8),
        SamplingOptions(min_p=0.3),
    ],
    ids=str,
)
def test_tokens_come_as_often_as_they_are_probable(options: SamplingOptions) -> None:
    logits, draws = normal(40), 20_000
    expected = probabilities(logits, options)
    sampler = Sampler(SamplingOptions(**{**_fields(options), "seed": 7}), ())
    counts = Counter(sampler.choose(logits).token for _ in range(draws))
    assert set(counts) <= set(np.flatnonzero(expected))
    for token, share in enumerate(expected):
        # Five standard deviations of a count.
        assert abs(counts[token] / draws - share) <= 5 * math.sqrt(share * (1 - share) / draws) + 1e-9


@pytest.mark.parametrize("scale", [0.01, 3.0])
@pytest.mark.parametrize(
    "options", [SamplingOptions(top_p=0.9), SamplingOptions(min_p=0.02), SamplingOptions(top_k=50, top_p=0.5)], ids=str
)
def test_a_large_vocabulary_has_the_same_candidates(options: SamplingOptions, scale: float) -> None:
    logits = normal(5000, scale=scale)
    allowed = set(np.flatnonzero(probabilities(logits, options)))
    sampler = Sampler(SamplingOptions(**{**_fields(options), "seed": 1}), ())
    drawn = {sampler.choose(logits).token for _ in range(300)}
    assert drawn <= allowed
    assert len(drawn) > min(len(allowed), 300) / 4


def test_seeds_do_not_depend_on_others() -> None:
    logits = [normal(100, seed) for seed in range(10)]

    def drawn() -> list[int]:
        sampler, other = Sampler(SamplingOptions(seed=3), ()), Sampler(SamplingOptions(seed=4), ())
        return [sampler.choose(own).token for own in logits if other.choose(own)]

    assert drawn() == drawn()
    assert len({tuple(Sampler(SamplingOptions(), ()).choose(own).token for own in logits) for _ in range(5)}) > 1


def test_temperature_0_takes_the_most_probable() -> None:
    logits = normal(1000)
    assert Sampler(SamplingOptions(temperature=0.0), ()).choose(logits).token == logits.argmax()
    assert Sampler(SamplingOptions(top_k=1), ()).choose(logits).token == logits.argmax()


def test_penalties_and_bias() -> None:
    greedy = {"temperature": 0.0}
    logits = np.array([1.0, 0.9, -1.0, 0.5], np.float32)
    assert Sampler(SamplingOptions(**greedy, logit_bias={2: 3.0, 99: 5.0}), ()).choose(logits).token == 2
    assert Sampler(SamplingOptions(**greedy, repetition_penalty=2.0), (0,)).choose(logits).token == 1
    # A negative logit is multiplied: 2 stays the least probable.
    assert Sampler(SamplingOptions(**greedy, repetition_penalty=2.0), (0, 1, 2)).choose(logits).token in (0, 3)
    present = Sampler(SamplingOptions(**greedy, presence_penalty=0.2), (0,))
    assert [present.choose(logits).token for _ in range(3)] == [0, 1, 0]
    often = Sampler(SamplingOptions(**greedy, frequency_penalty=0.3), ())
    assert [often.choose(logits).token for _ in range(4)] == [0, 1, 0, 1]
    assert logits.tolist() == pytest.approx([1.0, 0.9, -1.0, 0.5])


def test_what_is_banned_or_not_allowed_never_comes() -> None:
    logits, sampler = normal(50), Sampler(SamplingOptions(seed=0), ())
    allowed = np.arange(50) % 2 == 0
    drawn = {sampler.choose(logits, banned=(0, 2, 4), allowed=allowed).token for _ in range(500)}
    assert drawn <= set(range(6, 50, 2))


def test_logprobs_are_those_of_the_model() -> None:
    logits = normal(200)
    exact = logits - np.log(np.exp(logits.astype(np.float64)).sum())
    choice = Sampler(SamplingOptions(temperature=0.3, seed=1, logit_bias={5: 9.0}), (), logprobs=4).choose(logits)
    assert choice.logprob == pytest.approx(exact[choice.token], abs=1e-5)
    assert [one.token for one in choice.likely] == np.argsort(-logits)[:4].tolist()
    assert [one.logprob for one in choice.likely] == pytest.approx(np.sort(exact)[::-1][:4].tolist(), abs=1e-5)
    assert Sampler(SamplingOptions(), (), logprobs=0).choose(logits).likely == ()
    assert Sampler(SamplingOptions(), ()).choose(logits).logprob is None


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("temperature", -0.1),
        ("temperature", math.nan),
        ("top_p", 0.0),
        ("top_p", 1.1),
        ("min_p", 2.0),
        ("presence_penalty", 3.0),
        ("frequency_penalty", -2.1),
        ("repetition_penalty", 0.0),
        ("logit_bias", {3: 101.0}),
    ],
)
def test_values_out_of_range_are_named(field: str, value: object) -> None:
    with pytest.raises(InvalidArgument, match=field):
        SamplingOptions(**{field: value})  # type: ignore[arg-type]


@given(st.lists(st.floats(-50, 50, width=32), min_size=1, max_size=30), st.floats(0.01, 1.0), st.floats(0.05, 5.0))
def test_there_is_always_a_token(values: list[float], top_p: float, temperature: float) -> None:
    logits = np.array(values, np.float32)
    options = SamplingOptions(temperature=temperature, top_p=top_p, seed=0)
    assert probabilities(logits, options)[Sampler(options, ()).choose(logits).token] > 0


def _fields(options: SamplingOptions) -> dict[str, object]:
    return {name: getattr(options, name) for name in SamplingOptions.__dataclass_fields__}
