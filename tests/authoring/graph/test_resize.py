from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemill.dtype import DType
from tidemill.graph import Graph, TensorType, ops
from tidemill.protocol import Array

Check = Callable[..., Any]

RNG = np.random.default_rng(11)
ROUNDINGS: list[Callable[[Array], Array]] = [
    lambda x: np.ceil(x - 0.5),
    lambda x: np.floor(x + 0.5),
    np.floor,
    np.ceil,
]


def places(old: int, new: int, mode: int) -> Array:
    """Where new samples lie among the old ones."""
    at = np.arange(new, dtype=np.float32)
    scale = np.float32(new) / np.float32(old)
    if mode == 1:
        return at * np.float32(old - 1) / np.float32(new - 1) if new > 1 else at * 0
    if mode == 2:
        return at / scale
    if mode == 3 and new == 1:
        return at * 0
    return (at + np.float32(0.5)) / scale - np.float32(0.5)


def linear(old: int, new: int, mode: int) -> Array:
    """The matrix [new, old] of a linear interpolation."""
    at = np.clip(places(old, new, mode), 0, old - 1)
    return np.maximum(0, 1 - np.abs(at[:, None] - np.arange(old)))


def cubic(old: int, new: int) -> Array:
    at = places(old, new, 0)
    weights = np.zeros((new, old))
    for row, place in enumerate(at):
        for tap in range(int(np.floor(place)) - 1, int(np.floor(place)) + 3):
            x = abs(place - tap)
            near = (1.25 * x - 2.25) * x * x + 1
            far = ((-0.75 * x + 3.75) * x - 6) * x + 3
            weights[row, min(max(tap, 0), old - 1)] += near if x <= 1 else far
    return weights


def along_all(x: Array, matrices: list[Array]) -> Array:
    for axis, matrix in enumerate(matrices):
        x = np.moveaxis(np.tensordot(matrix.astype(np.float32), x, (1, axis)), 0, axis)
    return x


@st.composite
def sizes(draw: Any) -> tuple[Array, tuple[int, ...]]:
    rank = draw(st.integers(1, 4))
    old = draw(st.tuples(*[st.integers(1, 4)] * rank))
    new = draw(st.tuples(*[st.integers(1, 7)] * rank))
    return RNG.standard_normal(old).astype(np.float32), new


@given(sizes(), st.integers(0, 3))
@settings(max_examples=25, deadline=None, derandomize=True)
def test_linear_over_any_axes(check_op: Check, case: tuple[Array, Any], mode: int) -> None:
    x, new = case
    expect = along_all(x, [linear(a, b, mode) if a != b else np.eye(a) for a, b in zip(x.shape, new, strict=True)])
    check_op(lambda x: ops.resize_linear(x, new, mode), x, expect=expect, tolerance=(1e-4, 1e-5), reference=False)


@given(sizes(), st.sampled_from([0, 2, 3]), st.integers(0, 3))
@settings(max_examples=25, deadline=None, derandomize=True)
def test_nearest_over_any_axes(check_op: Check, case: tuple[Array, Any], mode: int, rounding: int) -> None:
    x, new = case
    expect = x
    for axis, (a, b) in enumerate(zip(x.shape, new, strict=True)):
        index = ROUNDINGS[rounding](places(a, b, mode)) if a != b else np.arange(a)
        expect = np.take(expect, np.clip(index, 0, a - 1).astype(int), axis)
    check_op(lambda x: ops.resize_nearest(x, new, mode, rounding), x, expect=expect, reference=False)


@pytest.mark.parametrize("new", [(2, 3, 7, 4), (2, 3, 3, 9), (2, 3, 5, 6)])
def test_bicubic(check_op: Check, new: tuple[int, ...]) -> None:
    x = RNG.standard_normal((2, 3, 5, 6)).astype(np.float32)
    expect = along_all(x, [np.eye(2), np.eye(3), cubic(5, new[2]), cubic(6, new[3])])
    check_op(lambda x: ops.resize_bicubic(x, new), x, expect=expect, tolerance=(1e-4, 1e-5), reference=False)


def test_antialias_averages_what_a_sample_stands_for(check_op: Check) -> None:
    x = RNG.standard_normal((1, 1, 1, 8)).astype(np.float32)
    tent = np.maximum(0, 1 - np.abs((np.arange(4)[:, None] * 2 + 0.5) - np.arange(8)) / 2)
    expect = x @ (tent / tent.sum(1, keepdims=True)).T.astype(np.float32)
    check_op(lambda x: ops.resize_linear(x, (1, 1, 1, 4), antialias=True), x, expect=expect, reference=False)


@pytest.mark.parametrize("mode", list(ops.InterpolationMode))
@pytest.mark.parametrize("batch", [0, 2])
def test_resize_takes_symbolic_sizes(check_op: Check, mode: ops.InterpolationMode, batch: int) -> None:
    x = RNG.standard_normal((batch, 3, 2, 4)).astype(np.float32)
    matrices = {
        ops.InterpolationMode.NEAREST: lambda old, new: np.repeat(np.eye(old), 2, 0),
        ops.InterpolationMode.BILINEAR: lambda old, new: linear(old, new, 0),
        ops.InterpolationMode.BICUBIC: cubic,
    }[mode]
    expect = along_all(x, [np.eye(batch), np.eye(3), matrices(2, 4), matrices(4, 8)])
    check_op(
        lambda x: ops.resize(x, [*x.shape[:2], x.shape[2] * 2, x.shape[3] * 2], mode),
        x,
        expect=expect,
        dims=[("n", 3, "h", "w")],
        tolerance=(1e-4, 1e-5),
        reference=False,
    )


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.int32, np.int16, np.float16, DType.bfloat16.to_numpy()])
def test_nearest_of_other_dtypes(check_op: Check, dtype: Any) -> None:
    x = RNG.integers(0, 100, (1, 2, 3)).astype(dtype)
    check_op(lambda x: ops.resize_nearest(x, (1, 4, 3)), x, expect=np.repeat(x, 2, 1), reference=False)


def test_the_same_size_needs_no_node() -> None:
    graph = Graph("same", lambda x: ops.resize_linear(x, x.shape) + 1, [TensorType(DType.float32, ["n", 3])])
    assert [node.op for node in graph.body.nodes] == ["Add"]


X = TensorType(DType.float32, ["n", 3, 4, 5])


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda x: ops.resize(x, [1, 2]), "takes .batch, channels, height, width."),
        (lambda x: ops.resize_linear(x, x.shape, 4), "coordinate_transform_mode must be 0-3, got 4"),
        (lambda x: ops.resize_nearest(x, x.shape, 0, 4), "round_mode must be 0-3, got 4"),
        (lambda x: ops.resize_nearest(x, [1]), r"size must have the same rank as input \(4\), got 1"),
        (lambda x: ops.resize_linear(x.cast(DType.int32), x.shape), "cast, and round the result"),
        (lambda x: ops.resize_bicubic(x, ["n", 4, 4, 5]), "only the last two change"),
        (lambda x: ops.resize_nearest(x, ["m", 3, 4, 5]), "dim 'm' is on no input"),
    ],
)
def test_what_does_not_fit_is_refused(build: Callable[..., Any], message: str) -> None:
    with Graph("wrong", input_types=[X]) as graph, pytest.raises(ValueError, match=message):
        build(graph.inputs[0].tensor)
