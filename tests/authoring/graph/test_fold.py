from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemill.dtype import DType
from tidemill.graph import Graph, TensorType, ops
from tidemill.protocol import Array

Check = Callable[..., Any]

RNG = np.random.default_rng(2)


def unfold(x: Array, kernel: Any, stride: Any, dilation: Any, padding: Any) -> list[tuple[Any, ...]]:
    """The windows of an image, as slices, in the order of blocks."""
    reach = [gap * (taps - 1) + 1 for taps, gap in zip(kernel, dilation, strict=True)]
    counts = [
        (size + 2 * side - span) // step + 1
        for size, side, span, step in zip(x.shape[2:], padding, reach, stride, strict=True)
    ]
    return [
        (
            ...,
            *(
                slice(at * step, at * step + span, gap)
                for at, step, span, gap in zip(place, stride, reach, dilation, strict=True)
            ),
        )
        for place in product(*map(range, counts))
    ]


@given(st.integers(0, 2), *[st.tuples(st.integers(1, 2), st.integers(1, 2))] * 3, st.integers(0, 1))
@settings(max_examples=25, deadline=None, derandomize=True)
def test_fold_adds_blocks_up(check_op: Check, batch: int, kernel: Any, stride: Any, dilation: Any, side: int) -> None:
    padding = (side, side)
    image = np.zeros((batch, 3, 5, 4), np.float32)
    wide = np.pad(image, [(0, 0), (0, 0), (side, side), (side, side)])
    windows = unfold(image, kernel, stride, dilation, padding)
    blocks = RNG.standard_normal((batch, 3 * kernel[0] * kernel[1], len(windows))).astype(np.float32)
    for place, window in enumerate(windows):
        wide[window] += blocks[..., place].reshape(batch, 3, *kernel)
    check_op(
        lambda x: ops.fold(x, (5, 4), kernel, stride, dilation, padding),
        blocks,
        expect=wide[:, :, side : side + 5, side : side + 4],
        dims=[("n", *blocks.shape[1:])],
        reference=False,  # onnx.reference has no empty batches
    )


def test_fold_to_a_symbolic_size(check_op: Check) -> None:
    blocks = np.arange(2 * 4 * 12, dtype=np.float32).reshape(2, 4, 12)
    like = np.zeros((3, 4), np.float32)
    expect = blocks.reshape(2, 4, 3, 4)
    check_op(
        lambda x, like: ops.fold(x.rebind([2, 4, like.shape[0] * like.shape[1]]), like.shape, (1, 1)),
        *(blocks, like),
        expect=expect,
        dims=[(2, 4, "blocks"), ("h", "w")],
    )


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((2, 5, 9), "must be a multiple of the kernel's 4"),
        ((2, 4, 8), "must be the 9 blocks"),
        ((4, 9), "takes floats"),
    ],
)
def test_blocks_must_fit(shape: Any, message: str) -> None:
    with (
        Graph("wrong", input_types=[TensorType(DType.float32, shape)]) as graph,
        pytest.raises(ValueError, match=message),
    ):
        ops.fold(graph.inputs[0].tensor, (4, 4), (2, 2))
