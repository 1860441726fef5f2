from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tidemill.dtype import DType
from tidemill.graph import Graph, TensorType, ops
from tidemill.protocol import Array

EXPERTS = (lambda rows: rows + 1, lambda rows: rows * 2, lambda rows: rows - 3)


def routed(x: Array, chosen: Array, factors: Array | None = None) -> Array:
    results = np.zeros((*chosen.shape, x.shape[1]), x.dtype)
    for row, choice in np.ndindex(*chosen.shape):
        number = chosen[row, choice]
        seen = x[row] if factors is None else x[row] * factors[row, choice]
        if 0 <= number < len(EXPERTS):
            results[row, choice] = EXPERTS[number](seen)
    return results


@pytest.mark.parametrize("rows", [0, 1, 7])
@pytest.mark.parametrize("choices", [1, 2])
@pytest.mark.parametrize("weighted", [False, True])
def test_rows_go_to_their_experts(check_op: Any, rows: int, choices: int, weighted: bool) -> None:
    rng = np.random.default_rng(rows)
    x, chosen = rng.standard_normal((rows, 4)).astype(np.float32), rng.integers(-1, 4, (rows, choices))
    factors = [rng.standard_normal((rows, choices)).astype(np.float32)] if weighted else []
    check_op(
        lambda value, places, *factor: ops.dispatch(value, places, EXPERTS, *factor),
        *(x, chosen, *factors),
        dims=[("n", 4), *[("n", choices)] * (1 + weighted)],
        expect=routed,
    )


@pytest.mark.parametrize(
    ("shape", "dtype", "text"),
    [((3, 2), DType.int64, "at least one expert"), ((4, 2), DType.int32, "int64"), ((4, "k"), DType.int64, "known")],
)
def test_what_does_not_fit_is_named(shape: Any, dtype: DType, text: str) -> None:
    types = [TensorType(DType.float32, [4, 5]), TensorType(dtype, shape)]
    with pytest.raises(ValueError, match=text):
        Graph("g", lambda x, chosen: ops.dispatch(x, chosen, EXPERTS), types)
