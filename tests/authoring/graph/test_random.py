from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tidemill.dtype import DType
from tidemill.engine.session import OrtSession, SessionOptions, open_session
from tidemill.graph import DeviceRef, Graph, TensorType, ops
from tidemill.graph.check import check_model
from tidemill.graph.export import to_model

CPU = DeviceRef.CPU()


def session(graph: Graph) -> OrtSession:
    model = to_model(graph)
    check_model(model)
    return open_session(model.SerializeToString(), SessionOptions(threads=1))


def two_draws(seed: int, like: TensorType) -> Graph:
    with Graph("draws", input_types=[TensorType(DType.float32, ["n"])]) as graph:
        ops.random.set_seed(seed)
        graph.output(ops.random.uniform(like, (-1, 3)), ops.random.gaussian(like, 5, 0.5))
    return graph


@pytest.mark.parametrize("dtype", [DType.float32, DType.float64, DType.float16])
@pytest.mark.parametrize("shape", [[5000], [2, "n"]])
def test_draws_have_the_asked_distribution(dtype: DType, shape: Any) -> None:
    graph = two_draws(3, TensorType(dtype, shape))
    assert graph.output_types == [TensorType(dtype, shape)] * 2
    feed = {"input0": np.zeros(2500, np.float32)}
    flat, bell = (out.astype(np.float64).ravel() for out in session(graph).run(feed).values())
    assert flat.size == bell.size == 5000
    assert flat.min() >= -1
    assert flat.max() <= 3
    assert abs(flat.mean() - 1) < 0.1
    assert abs(bell.mean() - 5) < 0.05
    assert abs(bell.std() - 0.5) < 0.05


def test_a_seed_fixes_the_runs_of_a_session_one_after_the_other() -> None:
    feed = {"input0": np.zeros(1, np.float32)}
    like = TensorType(DType.float32, [8])
    first, second = (session(two_draws(3, like)) for _ in range(2))
    runs = [[one.run(feed)["output_0"] for _ in range(2)] for one in (first, second)]
    np.testing.assert_array_equal(runs[0], runs[1])
    assert not np.array_equal(runs[0][0], runs[0][1])
    other = session(two_draws(4, like)).run(feed)["output_0"]
    assert not np.array_equal(other, runs[0][0])


def test_every_operator_draws_other_numbers() -> None:
    like = TensorType(DType.float32, [8])
    with Graph("two") as graph:
        ops.random.set_seed(2**64 - 1)
        graph.output(ops.random.normal(like), ops.random.normal(like))
    one, other = session(graph).run({}).values()
    assert not np.array_equal(one, other)


def test_what_cannot_be_drawn_is_refused() -> None:
    like = TensorType(DType.float32, [8])
    with Graph("wrong", input_types=[ops.random.SeedType(CPU)]) as graph:
        with pytest.raises(RuntimeError, match="No seed set! Set with `ops"):
            ops.random.uniform(like)
        with pytest.raises(NotImplementedError, match="make them an input of the graph"):
            ops.random.set_seed(graph.inputs[0])
        with pytest.raises(ValueError, match="is not in"):
            ops.random.set_seed(-1)
        ops.random.set_seed(0)
        with pytest.raises(ValueError, match="low < high"):
            ops.random.uniform(like, (1, 1))
        with pytest.raises(ValueError, match="must be above 0"):
            ops.random.gaussian(like, std=0)
        with pytest.raises(ValueError, match="draws floating point numbers"):
            ops.random.uniform(TensorType(DType.int32, [8]))


def test_operators_of_opsets_that_exclude_each_other_are_refused() -> None:
    like = TensorType(DType.float32, [2, 8])
    with Graph("mixed", input_types=[like]) as graph:
        ops.random.set_seed(0)
        x = graph.inputs[0].tensor + ops.random.normal(like)
        graph.output(ops.rms_norm(x, ops.constant(np.ones(8, np.float32)), 1e-5))
    with pytest.raises(ValueError, match="RMSNormalization and RandomNormal can not be in one model"):
        to_model(graph)
