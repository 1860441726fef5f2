from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tidemill.dtype import DType
from tidemill.graph import Graph, TensorType
from tidemill.graph.ops.rotary import rotary_embedding
from tidemill.protocol import Array


def rotate(x: Array, cos: Array, sin: Array, interleaved: bool) -> Array:
    """Each pair as a complex number, multiplied by one on the unit circle."""
    pairs = cos.shape[-1]
    turned = x[..., : 2 * pairs].astype(np.float64)
    halves = (turned[..., 0::2], turned[..., 1::2]) if interleaved else np.split(turned, 2, axis=-1)
    product = (halves[0] + 1j * halves[1]) * (cos + 1j * sin.astype(np.float64))[:, None]
    parts = [product.real, product.imag]
    result = np.stack(parts, -1).reshape(turned.shape) if interleaved else np.concatenate(parts, -1)
    return np.concatenate([result, x[..., 2 * pairs :]], -1).astype(x.dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.float64])
@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("pairs", [2, 4])
@pytest.mark.parametrize("batch", [0, 2])
def test_pairs_are_turned(check_op: Any, dtype: type, interleaved: bool, pairs: int, batch: int) -> None:
    rng = np.random.default_rng(pairs)
    x = rng.standard_normal((batch, 3, 5, 8)).astype(dtype)
    cos, sin = (rng.standard_normal((batch, 5, pairs)).astype(dtype) for _ in range(2))
    check_op(
        lambda *values: rotary_embedding(*values, interleaved=interleaved),
        *(x, cos, sin),
        dims=[("b", 3, "s", 8), ("b", "s", pairs), ("b", "s", pairs)],
        expect=lambda *arrays: rotate(*arrays, interleaved),
    )


@pytest.mark.parametrize(
    ("cos", "text"),
    [(["b", "s", 5], "5 pairs do not fit in 8"), (["b", "t", 4], "must both be"), (["b", "s"], "must both be")],
)
def test_what_does_not_fit_is_named(cos: list[Any], text: str) -> None:
    types = [TensorType(DType.float32, shape) for shape in (["b", 3, "s", 8], cos, cos)]
    with pytest.raises(ValueError, match=text):
        Graph("g", rotary_embedding, types)
