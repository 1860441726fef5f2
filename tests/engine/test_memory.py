"""Memory that a large run took goes back when asked, and weights stay pages of their file when asked."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tidemill.engine import Instance, InstanceOptions
from tidemill.engine.session import SessionOptions, open_session

ROLLUP = Path("/proc/self/smaps_rollup")
MB = 1 << 20
LARGE = 300_000  # rows of 128 bytes: 38 MB in, as much for each value between
# The output is small: what holds an output can only be given back by a later run.
SUM = """g (float[N, 32] x) => (float[32] y) <int64[1] rows = {0}> {
    h = Tanh (x) k = Add (h, x) m = Mul (k, h) y = ReduceSum <keepdims = 0> (m, rows)
}"""

pytestmark = pytest.mark.skipif(not ROLLUP.exists(), reason="needs /proc")


def private() -> int:
    line = next(line for line in ROLLUP.read_text().splitlines() if line.startswith("Anonymous"))
    return int(line.split()[1]) * 1024


def kept_after_a_large_run(model: bytes, shrink_above: int) -> int:
    runner = open_session(model, SessionOptions(threads=1, shrink_above=shrink_above))
    large = np.ones((LARGE, 32), np.float32)
    runner.run({"x": large[:1]})
    before = private()
    runner.run({"x": large})
    return private() - before


def test_a_large_run_gives_its_memory_back_if_asked(model_bytes):
    kept, shrunk, not_large = (kept_after_a_large_run(model_bytes(SUM), limit) for limit in (0, MB, 1 << 40))

    assert min(kept, not_large) > 20 * MB
    # Not to the byte: the tests before this one have left pages that are given back or taken at their own times.
    assert shrunk < min(kept, not_large) / 4


def test_answers_are_the_same_either_way(stack):
    x = np.random.default_rng(0).standard_normal((64, 32)).astype(np.float32)
    results = [
        Instance.open(stack, InstanceOptions(threads=1, **options)).run({"x": x})["y"]
        for options in ({}, {"prepack": False}, {"shrink_above": 1})
    ]

    np.testing.assert_allclose(results[1], results[0], rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(results[2], results[0])
