"""Reductions, running sums and products against numpy."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tidemill.dtype import DType
from tidemill.errors import UnprocessableInput
from tidemill.graph import Graph, TensorType, ops

FLOATS = ["float16", "float32", "float64"]
INTS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
FEW = settings(derandomize=True, max_examples=25, deadline=None)


def keeping(reduce: Callable[..., Any]) -> Callable[..., Any]:
    """The numpy reduction with the axis and the dtype kept."""
    return lambda x, axis: reduce(x, axis=axis, keepdims=True).astype(x.dtype)


def truncated_mean(x: Any, axis: int, keepdims: bool) -> Any:
    mean = np.mean(x.astype(np.float64), axis=axis, keepdims=keepdims)
    return mean if x.dtype.kind == "f" else np.trunc(mean)


REDUCTIONS: dict[str, Callable[..., Any]] = {
    "sum": keeping(np.sum),
    "prod": keeping(np.prod),
    "mean": keeping(truncated_mean),
    "min": keeping(np.min),
    "max": keeping(np.max),
    "argmin": lambda x, axis: np.argmin(x, axis=axis, keepdims=True),
    "argmax": lambda x, axis: np.argmax(x, axis=axis, keepdims=True),
}


@pytest.mark.parametrize("dtype", FLOATS + INTS)
@pytest.mark.parametrize("name", REDUCTIONS)
def test_a_reduction_keeps_the_axis_and_the_dtype(name: str, dtype: str, check_op: Any) -> None:
    x = np.array([[[3, 1, 3], [0, 2, 7]], [[5, 5, 100], [1, 4, 4]]], dtype)
    if dtype == "uint64" and name not in ("sum", "prod"):
        with pytest.raises(ValueError, match="cast to one of them"):
            check_op(getattr(ops, name), x, expect=None)
        return
    for axis in (-1, 0, 1):
        check_op(lambda x, axis=axis: getattr(ops, name)(x, axis=axis), x, expect=REDUCTIONS[name](x, axis))


@pytest.mark.parametrize("dtype", INTS)
def test_sums_and_products_of_integers_wrap(dtype: str, check_op: Any) -> None:
    x = np.full((2, 9), np.iinfo(dtype).max, dtype)
    check_op(
        lambda x: [ops.sum(x), ops.prod(x), ops.cumsum(x), ops.cumprod(x)],
        x,
        expect=lambda x: [
            *(oracle(x, axis=-1, keepdims=True, dtype=dtype) for oracle in (np.sum, np.prod)),
            *(oracle(x, axis=-1, dtype=dtype) for oracle in (np.cumsum, np.cumprod)),
        ],
    )


def test_integers_beyond_float64_are_reduced_exactly(check_op: Any) -> None:
    big = 2**53 + 1
    x = np.array([[big, 1, 1], [big, big + 1, -big], [3 * big, 1, 1]], np.int64)
    names = ("sum", "prod", "min", "max", "argmin", "argmax")
    check_op(
        lambda x: [*(getattr(ops, name)(x) for name in names), ops.cumsum(x), ops.cumprod(x)],
        x,
        expect=lambda x: [*(REDUCTIONS[name](x, -1) for name in names), np.cumsum(x, -1), np.cumprod(x, -1)],
    )


@given(data=st.data())
@FEW
def test_any_shape_along_any_axis(data: st.DataObject, check_op: Any) -> None:
    x = np.ones(data.draw(hnp.array_shapes(min_dims=1, max_dims=4, min_side=0, max_side=3)), np.float32)
    axis = data.draw(st.integers(-x.ndim, x.ndim - 1))
    name = data.draw(st.sampled_from(["sum", "prod", "mean"]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # numpy's, at the mean of nothing
        expected = REDUCTIONS[name](x, axis)
    check_op(lambda x: getattr(ops, name)(x, axis), x, expect=expected, reference=x.size > 0)


@given(data=st.data())
@FEW
def test_symbolic_axes(data: st.DataObject, check_op: Any) -> None:
    size = data.draw(st.integers(1, 3))
    name = data.draw(st.sampled_from(sorted(REDUCTIONS)))
    axis = data.draw(st.sampled_from([0, 1, -1]))
    x = np.arange(size * 4, dtype=np.float32).reshape(size, 4)
    check_op(lambda x: getattr(ops, name)(x, axis=axis), x, dims=[("n", 4)], expect=lambda x: REDUCTIONS[name](x, axis))


def test_over_nothing_sums_are_0_products_1_and_means_nan(check_op: Any) -> None:
    for dims in (None, [("n", 2)]):
        check_op(
            lambda x: [ops.sum(x, 0), ops.prod(x, 0), ops.mean(x, 0), ops.logsumexp(x, 0)],
            np.zeros((0, 2), np.float32),
            dims=dims,
            expect=[np.full((1, 2), number, np.float32) for number in (0, 1, np.nan, -np.inf)],
            reference=False,  # its mean warns, its logsumexp raises
        )


@pytest.mark.parametrize("name", ["min", "max", "argmin", "argmax"])
def test_over_nothing_there_is_no_extreme(name: str, run_op: Any) -> None:
    empty = np.zeros((0, 2), np.float32)
    with pytest.raises(ValueError, match="over nothing is not defined"):
        run_op(lambda x: getattr(ops, name)(x, axis=0), empty)
    with pytest.raises(UnprocessableInput):
        run_op(lambda x: getattr(ops, name)(x, axis=0), empty, dims=[("n", 2)])


def test_an_extreme_of_no_rows_is_no_rows(check_op: Any) -> None:
    x = np.zeros((0, 2), np.float32)
    check_op(lambda x: ops.max(x, axis=1), x, dims=[("n", "m")], expect=np.zeros((0, 1), np.float32))


def test_two_tensors_and_an_axis_do_not_go_together() -> None:
    types = [TensorType(DType.float32, [2])] * 2
    with pytest.raises(ValueError, match="Axis not allowed for elementwise max"):
        Graph("g", lambda x, y: ops.max(x, y, axis=0), types)


@pytest.mark.parametrize("name", [*REDUCTIONS, "cumsum", "cumprod", "softmax", "logsumexp", "top_k"])
def test_an_axis_out_of_range_is_named(name: str, trace_op: Any) -> None:
    arguments = [1] if name == "top_k" else []
    with pytest.raises(IndexError, match=r"expected to be in range of \[-2, 1\], but got 2"):
        trace_op(lambda x: getattr(ops, name)(x, *arguments, axis=2), np.ones((2, 2), np.float32))
    with pytest.raises(IndexError):
        trace_op(lambda x: getattr(ops, name)(x, *arguments, axis=-1), np.float32(1))


def test_a_bool_is_no_number(trace_op: Any) -> None:
    with pytest.raises(ValueError, match=r"takes numbers, not DType\.bool"):
        trace_op(ops.sum, np.ones(2, bool))


def soft(x: Any, axis: int = -1) -> list[Any]:
    """softmax, logsoftmax and logsumexp in float64."""
    wide = x.astype(np.float64)
    top = np.max(wide, axis=axis, keepdims=True)
    total = np.log(np.sum(np.exp(wide - top), axis=axis, keepdims=True)) + top
    return [one.astype(x.dtype) for one in (np.exp(wide - total), wide - total, total)]


@pytest.mark.parametrize("axis", [-1, 0])
@pytest.mark.parametrize("dtype", FLOATS)
def test_softmax_and_its_kin_do_not_overflow(dtype: str, axis: int, check_op: Any) -> None:
    x = np.array([[1, 2, 3], [1000, 1000, -1000], [0, 0, 0]], dtype)
    check_op(
        lambda x: [op(x, axis) for op in (ops.softmax, ops.logsoftmax, ops.logsumexp)],
        x,
        expect=lambda x: soft(x, axis),
        reference=False,  # its ReduceLogSumExp overflows
    )


def running(oracle: Callable[..., Any], neutral: int) -> Callable[..., Any]:
    def run(x: Any, axis: int, exclusive: bool, reverse: bool) -> Any:
        given = np.flip(x, axis) if reverse else x
        result = oracle(given, axis=axis, dtype=x.dtype)
        if exclusive:
            result = np.roll(result, 1, axis)
            np.moveaxis(result, axis, 0)[:1] = neutral
        return np.flip(result, axis) if reverse else result

    return run


RUNNING = {"cumsum": running(np.cumsum, 0), "cumprod": running(np.cumprod, 1)}


@pytest.mark.parametrize("flags", [(False, False), (True, False), (False, True), (True, True)])
@pytest.mark.parametrize("name", RUNNING)
def test_running_sums_and_products(name: str, flags: tuple[bool, bool], check_op: Any) -> None:
    x = np.array([[1, 2, -3], [0, 5, 6]], np.float32)
    for axis, dims in ((0, None), (-1, [("n", "m")])):
        check_op(
            lambda x, axis=axis: getattr(ops, name)(x, axis, *flags),
            x,
            dims=dims,
            expect=lambda x, axis=axis: RUNNING[name](x, axis, *flags),
        )


@pytest.mark.parametrize("dtype", [*FLOATS, *INTS])
@pytest.mark.parametrize("name", RUNNING)
def test_running_in_every_dtype_and_over_nothing(name: str, dtype: str, check_op: Any) -> None:
    for x in (np.array([[1, 2, 3], [0, 5, 6]], dtype), np.zeros((2, 0), dtype), np.zeros((0, 2), dtype)):
        check_op(
            lambda x: getattr(ops, name)(x),
            x,
            expect=lambda x: RUNNING[name](x, -1, False, False),
            reference=x.size > 0,  # it cannot run along nothing
        )
