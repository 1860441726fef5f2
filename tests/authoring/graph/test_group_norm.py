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

RNG = np.random.default_rng(4)


def group_norm(x: Array, gamma: Array, beta: Array, groups: int, epsilon: float) -> Array:
    wide = np.float64 if x.dtype == np.float64 else np.float32
    parts = x.astype(wide).reshape(x.shape[0], groups, int(np.prod(x.shape[1:])) // groups)
    normal = (parts - parts.mean(2, keepdims=True)) / np.sqrt(parts.var(2, keepdims=True) + epsilon)
    aligned = (1, -1, *[1] * (x.ndim - 2))
    return (normal.reshape(x.shape) * gamma.reshape(aligned) + beta.reshape(aligned)).astype(x.dtype)


@given(st.integers(0, 2), st.integers(1, 3), st.integers(1, 2), st.lists(st.integers(1, 4), max_size=3), st.booleans())
@settings(max_examples=25, deadline=None, derandomize=True)
def test_group_norm_equals_its_definition(
    check_op: Check, batch: int, groups: int, each: int, spatial: list[int], symbolic: bool
) -> None:
    channels = groups * each
    x = RNG.standard_normal((batch, channels, *spatial)).astype(np.float32)
    gamma, beta = (RNG.standard_normal(channels).astype(np.float32) for _ in range(2))
    check_op(
        lambda x, gamma, beta: ops.group_norm(x, gamma, beta, groups, 1e-3),
        *(x, gamma, beta),
        expect=lambda x, gamma, beta: group_norm(x, gamma, beta, groups, 1e-3),
        dims=[("n", channels, *"hwd"[: len(spatial)]), (channels,), (channels,)] if symbolic else None,
        tolerance=(1e-3, 1e-4),
        reference=batch > 0,  # onnx.reference takes means of nothing
    )


def test_float64(check_op: Check) -> None:
    x, gamma, beta = (RNG.standard_normal(shape) for shape in ((2, 4, 6), 4, 4))
    check_op(
        lambda x, gamma, beta: ops.group_norm(x, gamma, beta, 2, 1e-3),
        *(x, gamma, beta),
        expect=lambda x, gamma, beta: group_norm(x, gamma, beta, 2, 1e-3),
    )


def test_float16(check_op: Check) -> None:
    x, gamma, beta = (RNG.standard_normal(shape).astype(np.float16) for shape in ((2, 4, 6), 4, 4))
    check_op(
        lambda x, gamma, beta: ops.group_norm(x, gamma, beta, 2, 1e-3),
        *(x, gamma, beta),
        expect=lambda x, gamma, beta: group_norm(x, gamma.astype(np.float32), beta.astype(np.float32), 2, 1e-3),
        tolerance=(1e-2, 1e-2),
        reference=False,  # onnx.reference adds up in float16
    )


@pytest.mark.parametrize(
    ("shape", "groups", "message"),
    [
        (["n"], 1, "with >=2 dimensions"),
        (["n", 4, "h"], 3, "num_groups=3 must divide the 4 channels"),
        (["n", 4, "h"], 0, "num_groups=0"),
        (["n", 6, "h"], 2, r"gamma and beta must be \[6\]"),
    ],
)
def test_what_does_not_fit_is_refused(shape: Any, groups: int, message: str) -> None:
    types = [TensorType(DType.float32, shape), TensorType(DType.float32, [4])]
    with Graph("wrong", input_types=types) as graph:
        x, scale = (value.tensor for value in graph.inputs)
        with pytest.raises(ValueError, match=message):
            ops.group_norm(x, scale, scale, groups, 1e-5)
