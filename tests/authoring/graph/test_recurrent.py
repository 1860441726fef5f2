from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tidemill.dtype import DType
from tidemill.graph import Graph, TensorType, ops

IN, HIDDEN = 3, 4


def arrays(op: str, directions: int, length: int = 5, batch: int = 2) -> list[Any]:
    gates = {"lstm": 4, "gru": 3}[op]
    rng = np.random.default_rng(directions)
    rows = gates * HIDDEN
    shapes = [(length, batch, IN), (directions, rows, IN), (directions, rows, HIDDEN), (directions, 2 * rows)]
    shapes += [(directions, batch, HIDDEN)] * (gates - 2)
    return [rng.standard_normal(shape).astype(np.float32) for shape in shapes]


def call(op: str, *values: Any) -> Any:
    x, inputs, recurrent, bias, *states = values
    initial = tuple(states) if op == "lstm" else states[0]
    return getattr(ops, op)(x, (inputs, recurrent, bias), initial)


@pytest.mark.parametrize("op", ["lstm", "gru"])
@pytest.mark.parametrize("directions", [1, 2])
def test_symbolic_batches_equal_static_ones(run_op: Any, op: str, directions: int) -> None:
    given = arrays(op, directions)
    fixed = run_op(lambda *values: call(op, *values), *given)
    weights = [one.shape for one in given[1:4]]
    states = [(directions, "b", HIDDEN)] * len(given[4:])
    free = run_op(lambda *values: call(op, *values), *given, dims=[("s", "b", IN), *weights, *states])
    assert [one.shape for one in free][:2] == [(5, directions, 2, HIDDEN), (directions, 2, HIDDEN)]
    for one, other in zip(fixed, free, strict=True):
        np.testing.assert_array_equal(one, other)


FAULTS: dict[str, tuple[int, list[int], DType, str]] = {
    "rank": (0, [5, 2], DType.float32, "x must be"),
    "dtype": (0, [5, 2, IN], DType.float64, "float32 or float16"),
    "width": (1, [1, 16, 9], DType.float32, "the weights must be"),
    "bias": (3, [1, 16], DType.float32, r"\[1, 32\]"),
    "state": (4, [1, 3, HIDDEN], DType.float32, "an initial state must be"),
    "length": (0, [0, 2, IN], DType.float32, "length 0"),
}


@pytest.mark.parametrize("case", FAULTS)
def test_what_does_not_fit_is_named(case: str) -> None:
    place, shape, dtype, text = FAULTS[case]
    types = [TensorType(DType.float32, one.shape) for one in arrays("lstm", 1)]
    types[place] = TensorType(dtype, shape)
    with pytest.raises(ValueError, match=text):
        Graph("g", lambda *values: call("lstm", *values), types)
