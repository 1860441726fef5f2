"""Models that mix rows are found out, others are proved."""

from __future__ import annotations

import numpy as np
import pytest

from tidemill.dtype import DType
from tidemill.engine.batchability import batch_symbol, prove_batchable
from tidemill.engine.samples import sample_feed
from tidemill.protocol.types import TensorSpec

F32 = DType.float32


def spec(name, *shape):
    return TensorSpec(name, F32, shape)


@pytest.mark.parametrize(
    ("inputs", "outputs", "symbol"),
    [
        ([spec("x", "N", 3)], [spec("y", "N")], "N"),
        ([spec("x", "N", 3), spec("z", "N")], [spec("y", "N", 2)], "N"),
        ([spec("x", "N", 3), spec("z", "M")], [spec("y", "N")], None),
        ([spec("x", "N", 3)], [spec("y", "M")], None),
        ([spec("x", "N", 3)], [spec("y", "N"), spec("loss")], None),
        ([spec("x", 8, 3)], [spec("y", 8)], None),
        ([spec("x", "", 3)], [spec("y", "")], None),
        ([], [spec("y", "N")], None),
        ([spec("x", "N")], [], None),
    ],
)
def test_batch_symbol(inputs, outputs, symbol):
    assert batch_symbol(inputs, outputs) == symbol


@pytest.mark.parametrize(
    ("graph", "batchable", "reason"),
    [
        ("g (float[N, K] x) => (float[N] y) <int64[1] a = {1}> { y = ReduceSum<keepdims=0>(x, a) }", True, "3 rows"),
        ("g (int64[N, S] x) => (float[N, S] y) <float[2] t = {1, 2}> { y = Gather(t, x) }", True, "3 rows"),
        ("g (string[N] x) => (string[N] y) { y = Identity(x) }", True, "3 rows"),
        ("g (float[N, K] x) => (float[N, K] y) { y = Softmax<axis=0>(x) }", False, "'y' of a row depends on the other"),
        ("g (float[N, K] x) => (float[N, N] y) { t = Transpose(x) y = MatMul(x, t) }", False, "depends on the other"),
        (
            "g (float[N, K] x) => (float[N] mean) "
            "{ m = ReduceMean<keepdims=0>(x) k = Shape<start=1, end=2>(x) mean = Expand(m, k) }",
            False,
            "'mean' has shape [4] for 3 rows",
        ),
        ("g (float[N, 3] x) => (float[M, 3] y) { y = Identity(x) }", False, "not one symbol that all inputs"),
        (
            "g (float[N, 1, L] x) => (float[N, 1, M] y) <float[1, 1, 9] w = {1, 1, 1, 1, 1, 1, 1, 1, 1}> "
            "{ y = Conv(x, w) }",
            True,
            "3 rows",
        ),
        (
            "g (int64[N] x) => (float[N] y) <float[0] t = {}> { y = Gather(t, x) }",
            False,
            "nothing could be proved: Gather node",
        ),
    ],
)
def test_the_proof(session, graph, batchable, reason):
    runner = session(graph)

    proof = prove_batchable(runner.run, runner.inputs, runner.outputs)

    assert proof.batchable is batchable
    assert reason in proof.reason


@pytest.mark.parametrize("dtype", list(DType))
def test_samples_fit_and_rows_differ(dtype):
    feed = sample_feed([TensorSpec("x", dtype, ("N", 2, "", "S"))], {"N": 3, "S": 5}, size=4)

    assert feed["x"].shape == (3, 2, 4, 5)
    assert feed["x"].dtype == dtype.to_numpy()
    assert feed["x"][0].tobytes() != feed["x"][1].tobytes()
    if not dtype.is_float() and dtype is not DType.string:
        assert (feed["x"].astype(np.int64).max(axis=-1) == 1).all()
