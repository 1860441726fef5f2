from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemill.dtype import DType
from tidemill.graph import ConvInputLayout, Graph, TensorType, ops
from tidemill.protocol import Array

Check = Callable[..., Any]

RNG = np.random.default_rng(3)
LOWEST = np.finfo(np.float32).min
MAXIMA = {1: ops.max_pool1d, 2: ops.max_pool2d, 3: ops.max_pool3d}
MEANS = {1: ops.avg_pool1d, 2: ops.avg_pool2d, 3: ops.avg_pool3d}


def steps(size: int, reach: int, stride: int, padding: int, ceil: bool) -> int:
    room = size + 2 * padding - reach
    count = (-(-room // stride) if ceil else room // stride) + 1
    return count - 1 if ceil and (count - 1) * stride >= size + padding else count


def pool(
    x: Array, kernel: Any, stride: Any, dilation: Any, padding: Any, ceil: bool, fold: Callable[..., Any]
) -> Array:
    """Window by window; `fold` gets the elements, and which of them are padding and which hang over."""
    reach = [gap * (taps - 1) + 1 for taps, gap in zip(kernel, dilation, strict=True)]
    sizes = [steps(*args, ceil) for args in zip(x.shape[1:-1], reach, stride, padding, strict=True)]
    ends = [
        max(0, (count - 1) * step + span - size - side)
        for count, step, span, size, side in zip(sizes, stride, reach, x.shape[1:-1], padding, strict=True)
    ]
    wide = np.pad(x, [(0, 0), *zip(padding, ends, strict=True), (0, 0)])
    kinds = np.pad(np.ones(x.shape[1:-1]), [(side, side) for side in padding])
    kinds = np.pad(
        kinds, [(0, max(0, end - side)) for side, end in zip(padding, ends, strict=True)], constant_values=-1
    )
    out = np.zeros((x.shape[0], *sizes, x.shape[-1]), x.dtype)
    for place in product(*map(range, sizes)):
        starts = zip(place, stride, reach, dilation, strict=True)
        window = tuple(slice(at * step, at * step + span, gap) for at, step, span, gap in starts)
        elements = wide[(slice(None), *window)].reshape(x.shape[0], kinds[window].size, x.shape[-1])
        out[(slice(None), *place)] = fold(elements, kinds[window].ravel())
    return out


def largest(elements: Array, kind: Array) -> Array:
    return np.fmax.reduce(elements[:, kind == 1], 1, initial=LOWEST)


def mean(elements: Array, kind: Array) -> Array:
    return elements[:, kind == 1].sum(1) / max(1, (kind == 1).sum())


def mean_with_padding(elements: Array, kind: Array) -> Array:
    return elements[:, kind >= 0].sum(1) / (kind >= 0).sum()


@st.composite
def windows(draw: Any) -> tuple[Any, ...]:
    rank = draw(st.integers(1, 3))
    kernel, stride, dilation = (draw(st.tuples(*[st.integers(1, 3)] * rank)) for _ in range(3))
    padding = tuple(draw(st.integers(0, size // 2)) for size in kernel)
    reach = [gap * (taps - 1) + 1 for taps, gap in zip(kernel, dilation, strict=True)]
    image = [draw(st.integers(max(1, span), span + 3)) for span in reach]
    x = RNG.standard_normal((draw(st.integers(0, 2)), *image, 2)).astype(np.float32)
    return x, kernel, stride, dilation, padding, draw(st.booleans())


@given(windows())
@settings(max_examples=30, deadline=None, derandomize=True)
def test_max_pool_equals_its_definition(check_op: Check, case: tuple[Any, ...]) -> None:
    x, *window = case
    check_op(
        lambda x: MAXIMA[x.rank - 2](x, *window),
        x,
        expect=lambda x: pool(x, *window, largest),
        reference=False,  # onnx.reference does not know every combination
    )


@given(windows(), st.booleans())
@settings(max_examples=30, deadline=None, derandomize=True)
def test_avg_pool_equals_its_definition(check_op: Check, case: tuple[Any, ...], count_boundary: bool) -> None:
    x, *window = case
    fold = mean_with_padding if count_boundary else mean
    check_op(
        lambda x: MEANS[x.rank - 2](x, *window, count_boundary),
        x,
        expect=lambda x: pool(x, *window, fold),
        reference=False,  # onnx.reference does not know every combination
    )


@pytest.mark.parametrize("ceil", [False, True])
def test_symbolic_sizes(check_op: Check, ceil: bool) -> None:
    x = RNG.standard_normal((2, 7, 6, 3)).astype(np.float32)
    window = ((3, 3), (2, 2), (1, 1), (1, 0), ceil)
    dims = [("n", "h", "w", 3)]
    check_op(lambda x: ops.max_pool2d(x, *window), x, expect=lambda x: pool(x, *window, largest), dims=dims)
    check_op(
        lambda x: ops.avg_pool2d(x, *window),
        x,
        expect=lambda x: pool(x, *window, mean_with_padding),
        dims=dims,
        reference=False,  # onnx.reference counts padding at one side only
    )


def test_padding_may_be_wider_than_the_window(check_op: Check) -> None:
    x = RNG.standard_normal((1, 4, 2)).astype(np.float32)
    check_op(
        lambda x: ops.avg_pool1d(x, 2, 2, 1, 3),
        x,
        expect=lambda x: pool(x, (2,), (2,), (1,), (3,), False, mean_with_padding),
    )
    check_op(
        lambda x: ops.max_pool1d(x, 2, 3, 1, 2), x, expect=lambda x: pool(x, (2,), (3,), (1,), (2,), False, largest)
    )


def test_one_number_counts_for_all_axes_and_channels_may_come_first(check_op: Check) -> None:
    x = RNG.standard_normal((1, 2, 5, 6)).astype(np.float32)
    last = np.moveaxis(x, 1, -1)
    layout = {"input_layout": ConvInputLayout.NCHW}
    for op, fold in ((ops.max_pool2d, largest), (ops.avg_pool2d, mean_with_padding)):
        expect = np.moveaxis(pool(last, (2, 2), (2, 2), (1, 1), (1, 1), False, fold), -1, 1)
        check_op(lambda x, op=op: op(x, 2, 2, 1, 1, **layout), x, expect=expect)


def test_max_pool_passes_over_what_is_no_number(check_op: Check) -> None:
    x = np.array([np.nan, 1, np.nan, np.nan, -np.inf, -np.inf, np.inf, np.nan], np.float32).reshape(1, 8, 1)
    expect = np.array([1, LOWEST, LOWEST, np.inf], np.float32).reshape(1, 4, 1)
    check_op(lambda x: ops.max_pool1d(x, 2, 2), x, expect=expect, reference=False)  # numpy keeps NaN and infinity


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.float16, np.float64, DType.bfloat16.to_numpy()])
def test_max_pool_of_other_dtypes(check_op: Check, dtype: Any) -> None:
    x = RNG.integers(0, 100, (1, 5, 2)).astype(dtype)
    expect = np.maximum(x[:, :-1], x[:, 1:])[:, ::2]
    check_op(lambda x: ops.max_pool1d(x, 2, 2), x, expect=expect, reference=False)  # numpy has no bfloat16 inside it


X = TensorType(DType.float32, ["n", 8, "w", 4])


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda x: ops.max_pool1d(x, 2), "takes a tensor of rank 3"),
        (lambda x: ops.max_pool2d(x, (2, 2, 2)), "kernel_size .* must be 2 whole numbers"),
        (lambda x: ops.max_pool2d(x, 9), "does not fit spatial axis 0"),
        (lambda x: ops.max_pool2d(x, 2, 3, ceil_mode=True), "ceil_mode over the symbolic dim w"),
        (lambda x: ops.avg_pool2d(x, 2, padding=2, count_boundary=False), "padding must be smaller than kernel_size"),
        (lambda x: ops.avg_pool2d(x.cast(DType.int32), 2), "has no kernel for DType.int32"),
    ],
)
def test_what_does_not_fit_is_refused(build: Callable[..., Any], message: str) -> None:
    with Graph("wrong", input_types=[X]) as graph, pytest.raises(ValueError, match=message):
        build(graph.inputs[0].tensor)


def test_the_seed_s_shape_of_pooling() -> None:
    graph = Graph("pool", lambda x: ops.max_pool2d(x, (2, 2), 2), [TensorType(DType.float32, ["b", 8, 8, 3])])
    assert graph.output_types == [TensorType(DType.float32, ["b", 4, 4, 3])]
