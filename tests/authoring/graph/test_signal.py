from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemill.dtype import DType
from tidemill.graph import DeviceRef, Graph, TensorType, ops

Check = Callable[..., Any]

RNG = np.random.default_rng(2)
CPU = DeviceRef.CPU()


@given(
    st.tuples(st.integers(0, 3), st.integers(1, 6), st.integers(1, 3)),
    st.integers(0, 2),
    st.one_of(st.none(), st.integers(1, 9)),
    st.sampled_from(list(ops.Normalization)),
)
@settings(max_examples=30, deadline=None, derandomize=True)
def test_irfft_equals_numpy_s(check_op: Check, shape: Any, axis: int, n: int | None, norm: ops.Normalization) -> None:
    if shape[axis] < 2 and n is None:
        n = 3
    pairs = RNG.standard_normal((*shape, 2)).astype(np.float32)
    complexes = pairs[..., 0] + 1j * pairs[..., 1]
    if shape[axis] == 0:
        return
    check_op(
        lambda x: ops.irfft(x, n, axis, norm, input_is_complex=True),
        pairs,
        expect=np.fft.irfft(complexes, n, axis, norm.value).astype(np.float32),
        tolerance=(1e-4, 1e-5),
        reference=False,  # onnx.reference has no empty transforms
    )


def test_irfft_of_real_parts_and_by_name(check_op: Check) -> None:
    x = RNG.standard_normal((2, 5)).astype(np.float64)
    check_op(
        lambda x: ops.irfft(x, normalization="ortho"),
        x,
        expect=np.fft.irfft(x, norm="ortho"),
        dims=[("n", 5)],
        tolerance=(1e-9, 1e-12),
    )


@pytest.mark.parametrize(
    ("length", "periodic"), [(0, True), (1, True), (1, False), (2, True), (2, False), (8, True), (9, False)]
)
def test_hann_window(check_op: Check, length: int, periodic: bool) -> None:
    expect = np.hanning(length + 1)[:-1] if periodic and length > 1 else np.hanning(length)
    check_op(
        lambda x: x + ops.hann_window(length, CPU, periodic),
        np.zeros(length, np.float32),
        expect=expect.astype(np.float32),
    )


def test_as_interleaved_complex(check_op: Check) -> None:
    x = RNG.standard_normal((3, 4)).astype(np.float32)
    check_op(ops.as_interleaved_complex, x, expect=x.reshape(3, 2, 2), dims=[("n", 4)])


@pytest.mark.parametrize(
    ("build", "error", "message"),
    [
        (lambda x: ops.irfft(x, axis=0), ValueError, "Axis dimension must be static, got n"),
        (lambda x: ops.irfft(x, normalization="none"), ValueError, "'none' is not a valid Normalization"),
        (lambda x: ops.irfft(x, input_is_complex=True), ValueError, "a last axis of 2"),
        (lambda x: ops.irfft(x.cast(DType.float16)), ValueError, "takes float32 or float64"),
        (lambda x: ops.irfft(x[:, :1]), ValueError, "give n >= 1"),
        (lambda x: ops.as_interleaved_complex(x), ValueError, "must be divisible by 2"),
        (lambda x: ops.as_interleaved_complex(x.T), TypeError, "must be static"),
        (lambda x: ops.hann_window(-1, CPU), ValueError, "must be non-negative"),
        (lambda x: ops.hann_window(2.5, CPU), TypeError, "must be an integer, got float"),
    ],
)
def test_what_does_not_fit_is_refused(build: Callable[..., Any], error: type[Exception], message: str) -> None:
    types = [TensorType(DType.float32, ["n", 5])]
    with Graph("wrong", input_types=types) as graph, pytest.raises(error, match=message):
        build(graph.inputs[0].tensor)
