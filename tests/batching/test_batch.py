"""Joining and splitting conserve rows, values and dtypes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.batching.batch import PIN_LIMIT, join, split
from tidemill.errors import InferenceFailed

DTYPES = [np.float32, np.float16, np.int64, np.uint8, np.bool_, np.object_]


@given(
    rows=st.lists(st.integers(0, 5), min_size=1, max_size=8),
    inner=st.lists(st.integers(0, 3), max_size=3),
    dtype=st.sampled_from(DTYPES),
)
def test_what_was_joined_is_split_again(rows, inner, dtype):
    rng = np.random.default_rng(0)
    feeds = [{"x": rng.integers(0, 9, (count, *inner)).astype(dtype)} for count in rows]

    parts = split(join(feeds), rows)

    assert len(parts) == len(feeds)
    for part, feed in zip(parts, feeds, strict=True):
        assert part["x"].dtype == feed["x"].dtype
        np.testing.assert_array_equal(part["x"], feed["x"])


def test_a_lone_feed_is_not_copied():
    feed = {"x": np.ones((2, 3), np.float32)}

    assert join([feed]) is feed


@pytest.mark.parametrize(("rows", "shares"), [(4, True), (PIN_LIMIT // 4 + 4, False)])
def test_parts_of_big_outputs_are_copies(rows, shares):
    outputs = {"y": np.zeros(rows, np.float32)}

    parts = split(outputs, [1, rows - 1])

    assert all(np.shares_memory(part["y"], outputs["y"]) is shares for part in parts)


@pytest.mark.parametrize("shape", [(), (2,), (4, 3)])
def test_an_output_with_other_rows_is_refused(shape):
    with pytest.raises(InferenceFailed, match=r"output 'mean' has shape .* for a batch of 3 rows"):
        split({"mean": np.zeros(shape)}, [1, 2])
