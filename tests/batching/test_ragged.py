"""Requests of different lengths are padded together, and nothing of it is seen from outside."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.batching import Batcher, BatchingOptions, CostPolicy, CostTable, FixedPolicy, Ragged
from tidemill.batching.batch import split
from tidemill.batching.policy import buckets, little_padding

RAGGED = Ragged({"x": (1,)}, {"y": (1,)}, {"x": -7}, ("mask", np.dtype(np.int32)))


def feed_of(rows, length):
    return {"x": np.arange(rows * length, dtype=np.int64).reshape(rows, length)}


class Model:
    """y = x and the sum of each row, both over what the mask keeps; remembers the shapes of its runs."""

    def __init__(self):
        self.shapes = []

    def __call__(self, feed, cancel=None):
        x, mask = feed["x"], feed["mask"]
        self.shapes.append(x.shape)
        assert (x[mask == 0] == -7).all()
        return {"y": x, "sum": (x * mask).sum(1)}


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 6)), min_size=1, max_size=6))
def test_what_was_padded_is_cut_back(sizes):
    feeds = [feed_of(*size) for size in sizes]
    rows = [count for count, _ in sizes]

    joined = RAGGED.join(feeds, rows)
    parts = RAGGED.cut(split(Model()(joined), rows), feeds)

    assert joined["x"].shape == (sum(rows), max(length for _, length in sizes))
    assert joined["mask"].sum() == sum(count * length for count, length in sizes)
    for feed, part in zip(feeds, parts, strict=True):
        np.testing.assert_array_equal(part["y"], feed["x"])
        np.testing.assert_array_equal(part["sum"], feed["x"].sum(1))


def test_equal_lengths_are_only_put_behind_each_other():
    feed = feed_of(2, 3)

    assert RAGGED.join([feed], [2])["x"] is feed["x"]
    np.testing.assert_array_equal(RAGGED.join([feed, feed], [2, 2])["x"], np.concatenate([feed["x"]] * 2))


def test_several_axes_and_strings_are_padded_too():
    ragged = Ragged({"bias": (1, 2), "names": (1,)})
    feeds = [{"bias": np.ones((1, n, n)), "names": np.full((1, n), b"a", object)} for n in (1, 2)]

    joined = ragged.join(feeds, [1, 1])

    assert joined["bias"].tolist() == [[[1, 0], [0, 0]], [[1, 1], [1, 1]]]
    assert joined["names"].tolist() == [[b"a", b""], [b"a", b"a"]]
    assert "mask" not in joined


@pytest.mark.parametrize(
    ("mates", "lengths", "shapes"),
    [
        (lambda _, __: True, [3, 9, 4], [(3, 9)]),
        (buckets((4, 8)), [3, 9, 4, 5], [(2, 4), (1, 9), (1, 5)]),
        (little_padding(0.15), [10, 3, 9, 10], [(3, 10), (1, 3)]),
    ],
)
async def test_requests_meet_only_their_mates_and_wait_for_nobody(mates, lengths, shapes):
    model, records = Model(), []
    options = BatchingOptions(ragged=RAGGED)
    batcher = Batcher(model, options, policy=FixedPolicy(options, mates), observer=records.append)

    answers = await asyncio.gather(*(batcher.infer(feed_of(1, length), 1) for length in lengths))

    assert model.shapes == shapes
    assert [record.length for record in records] == [length for _, length in shapes]
    for length, answer in zip(lengths, answers, strict=True):
        np.testing.assert_array_equal(answer["y"], feed_of(1, length)["x"])
    await batcher.drain()
    batcher.close()


async def test_padding_is_told():
    records = []
    batcher = Batcher(Model(), BatchingOptions(ragged=RAGGED), observer=records.append)

    await asyncio.gather(batcher.infer(feed_of(1, 2), 1), batcher.infer(feed_of(3, 4), 3))

    assert records[0].padding == pytest.approx(2 / 16)
    batcher.close()


@pytest.mark.parametrize("policy", ["fixed", "cost"])
async def test_a_storm_of_lengths_loses_and_mixes_nothing(policy):
    rng = np.random.default_rng(0)
    options = BatchingOptions(ragged=RAGGED, max_batch_size=6, instances=2, inline_below=0.0)
    table = CostTable({(1, 1): 1e-4, (6, 1): 2e-4, (1, 9): 3e-4, (6, 9): 4e-3})
    batcher = Batcher(Model(), options, policy=CostPolicy(table, options) if policy == "cost" else None)

    async def caller(number):
        for turn in range(20):
            rows, length = int(rng.integers(1, 4)), int(rng.integers(1, 9))
            x = np.full((rows, length), 100 * number + turn)
            answer = await batcher.infer({"x": x}, rows)
            np.testing.assert_array_equal(answer["y"], x)
            np.testing.assert_array_equal(answer["sum"], x.sum(1))

    await asyncio.gather(*(caller(number) for number in range(20)))
    await batcher.drain()
    batcher.close()
