"""Products of matrices and normalisations against numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tidemill.graph import ops
from tidemill.graph.export import to_model

NUMBERS = ["float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
FEW = settings(derandomize=True, max_examples=25, deadline=None)


def numbers(*shape: int, dtype: str = "float32") -> np.ndarray[Any, Any]:
    return np.random.default_rng(len(shape)).integers(-3 if dtype[0] != "u" else 0, 4, shape).astype(dtype)


@pytest.mark.parametrize("dtype", NUMBERS)
def test_products_in_every_dtype(dtype: str, check_op: Any) -> None:
    x, w, b = numbers(2, 3, dtype=dtype), numbers(4, 3, dtype=dtype), numbers(4, dtype=dtype)
    check_op(
        lambda x, w, b: [x @ w.T, ops.linear(x, w, b), ops.linear(x[None], w), ops.outer(b, b)],
        x,
        w,
        b,
        expect=lambda x, w, b: [x @ w.T, x @ w.T + b, (x @ w.T)[None], np.outer(b, b)],
        tolerance=(1e-3, 1e-3) if dtype == "float16" else None,
    )


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16"])
def test_products_of_small_integers_wrap(dtype: str, check_op: Any) -> None:
    x = np.full((2, 3), np.iinfo(dtype).max, dtype)
    check_op(lambda x: x @ x.T, x, expect=lambda x: x @ x.T)


@given(shapes=hnp.mutually_broadcastable_shapes(signature=np.matmul.signature, max_dims=2, min_side=0, max_side=3))
@FEW
def test_matmul_of_any_shapes(shapes: Any, check_op: Any) -> None:
    left, right = shapes.input_shapes
    check_op(ops.matmul, np.ones(left, np.float32), np.ones(right, np.float32), expect=np.matmul)


@given(data=st.data())
@FEW
def test_linear_of_any_rank(data: st.DataObject, check_op: Any) -> None:
    x = np.ones(data.draw(hnp.array_shapes(min_dims=1, max_dims=4, min_side=0, max_side=3)), np.float32)
    w = np.ones((data.draw(st.integers(0, 3)), x.shape[-1]), np.float32)
    dims = [[*(f"d{axis}" for axis in range(x.ndim - 1)), x.shape[-1]], w.shape]
    check_op(ops.linear, x, w, dims=dims if data.draw(st.booleans()) else None, expect=lambda x, w: x @ w.T)


def test_a_transposed_weight_is_read_as_it_lies(trace_op: Any) -> None:
    graph = trace_op(lambda x, w: x @ ops.transpose(w, 0, 1), numbers(2, 3), numbers(4, 3))
    assert [node.op_type for node in to_model(graph, weights="inputs").graph.node][-1] in ("Gemm", "MatMul")


@pytest.mark.parametrize(
    ("left", "right", "text"),
    [
        ((2, 3), (4, 5), r"dimension at axis -1 \(value 3\) must match .* dimension at axis -2 \(value 4\)"),
        ((2,), (3,), r"axis -1 \(value 2\) must match .* axis -1 \(value 3\)"),
        ((2, 1, 3), (3, 3, 1), "do not broadcast"),
        ((), (3,), "takes no scalars"),
    ],
)
def test_products_that_do_not_fit(left: Any, right: Any, text: str, trace_op: Any) -> None:
    with pytest.raises(ValueError, match=text):
        trace_op(ops.matmul, np.ones(left, np.float32), np.ones(right, np.float32))


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("ij,jk->ik", [(2, 3), (3, 4)]),
        ("bqd,bkd->bqk", [(2, 3, 4), (2, 5, 4)]),
        ("ij,jk", [(2, 3), (3, 4)]),
        ("ba", [(2, 3)]),
        ("ii->i", [(3, 3)]),
        ("ii", [(3, 3)]),
        ("i,j->ij", [(2,), (3,)]),
        ("ij->", [(2, 3)]),
        ("ij,ij,i->j", [(2, 3), (2, 3), (2,)]),
        (" bhqk, bhkd -> bqhd ", [(1, 2, 3, 4), (1, 2, 4, 5)]),
        (",i->i", [(), (3,)]),
        ("ij,jk->ik", [(0, 3), (3, 4)]),
        ("ij,jk->ik", [(2, 0), (0, 4)]),
    ],
)
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_einsum(equation: str, shapes: Any, dtype: str, check_op: Any) -> None:
    arrays = [numbers(*shape, dtype=dtype) for shape in shapes]
    check_op(lambda *xs: ops.einsum(equation, *xs), *arrays, expect=lambda *xs: np.asarray(np.einsum(equation, *xs)))


def test_einsum_of_symbols_and_of_dtypes_that_differ(check_op: Any) -> None:
    x, y = numbers(2, 3, dtype="float16"), numbers(3, 2, dtype="float32")
    check_op(
        lambda x, y: ops.einsum("nd,dm->nm", x, y),
        x,
        y,
        dims=[("n", 3), (3, "m")],
        expect=lambda x, y: x.astype("f4") @ y,
    )


@pytest.mark.parametrize(
    ("equation", "text"),
    [
        ("ij,kj->i", "axis 'j' of .* is both 3 and 4"),
        ("ij->k", "must be letters"),
        ("i...,j->i", "must be letters"),
        ("ij,jk,k->i", "does not fit"),
        ("ij,j->i", "does not fit"),
        ("ij,jk->ii", "must be letters"),
    ],
)
def test_equations_that_make_no_sense(equation: str, text: str, trace_op: Any) -> None:
    with pytest.raises(ValueError, match=text):
        trace_op(lambda x, y: ops.einsum(equation, x, y), numbers(2, 3), numbers(5, 4))


def test_einsum_takes_no_integers(trace_op: Any) -> None:
    with pytest.raises(ValueError, match=r"not DType.int32; use matmul"):
        trace_op(lambda x: ops.einsum("ij->i", x), numbers(2, 3, dtype="int32"))


def layer_norm(x: Any, g: Any, b: Any) -> Any:
    wide = x.astype(np.float64)
    normal = (wide - wide.mean(-1, keepdims=True)) / np.sqrt(wide.var(-1, keepdims=True) + 1e-5)
    return (normal * g + b).astype(x.dtype)


def rms_norm(x: Any, w: Any, offset: float = 0.0) -> Any:
    wide = x.astype(np.float64)
    return (wide / np.sqrt((wide**2).mean(-1, keepdims=True) + 1e-6) * (w.astype(np.float64) + offset)).astype(x.dtype)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_normalisations(dtype: str, check_op: Any) -> None:
    # 300 squared is beyond float16, whose statistics are float32.
    x = np.array([[[1, 2, 3, 300]], [[4, -4, 0.5, 1]]], dtype)
    w, b = np.array([1, 2, 0.5, 1], dtype), np.array([0, 1, 0, -1], dtype)
    check_op(
        lambda x, w, b: [ops.layer_norm(x, w, b, 1e-5), ops.layer_norm(x, w, None, 1e-5)],
        x,
        w,
        b,
        dims=[("n", "s", 4), (4,), (4,)],
        expect=lambda x, w, b: [layer_norm(x, w, b), layer_norm(x, w, 0)],
        reference=dtype != "float16",  # it squares in float16
    )
    check_op(
        lambda x, w: [ops.rms_norm(x, w, 1e-6), ops.rms_norm(x, w, 1e-6, 1.0), ops.rms_norm(x, w, 1e-6, 0, True)],
        x,
        w,
        dims=[("n", "s", 4), (4,)],
        expect=lambda x, w: [rms_norm(x, w), rms_norm(x, w, 1.0), rms_norm(x, w)],
        reference=dtype != "float16",
    )


@pytest.mark.parametrize("op", [lambda x, w: ops.rms_norm(x, w, 1e-6), lambda x, w: ops.layer_norm(x, w, None, 1e-6)])
def test_a_scale_that_does_not_fit(op: Any, trace_op: Any) -> None:
    for scale in (np.ones(2, np.float32), np.ones(3, np.float64), np.ones((3, 1), np.float32)):
        with pytest.raises(ValueError, match="scale and shift must be"):
            trace_op(op, numbers(2, 3), scale)


ACTIVATIONS = {
    "relu": lambda x: np.maximum(x, 0),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "silu": lambda x: x / (1 + np.exp(-x)),
    "elu": lambda x: np.where(x < 0, np.expm1(x), x),
    "selu": lambda x: 1.0507009873554805 * np.where(x < 0, 1.6732632423543772 * np.expm1(x), x),
    "leaky_relu": lambda x: np.where(x < 0, 0.01 * x, x),
    "softplus": lambda x: np.logaddexp(x, 0),
    "softsign": lambda x: x / (1 + np.abs(x)),
    "hard_sigmoid": lambda x: np.clip(x / 6 + 0.5, 0, 1),
    "hard_swish": lambda x: x * np.clip(x / 6 + 0.5, 0, 1),
    "mish": lambda x: x * np.tanh(np.logaddexp(x, 0)),
}


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations(name: str, dtype: str, check_op: Any) -> None:
    x = np.linspace(-4, 4, 17).astype(dtype)
    check_op(getattr(ops, name), x, expect=lambda x: ACTIVATIONS[name](x.astype(np.float64)).astype(dtype))


@pytest.mark.parametrize("approximate", ["none", "tanh", "quick"])
def test_gelu(approximate: str, check_op: Any) -> None:
    from math import erf

    forms = {
        "none": lambda x: x * (1 + np.vectorize(erf)(x / np.sqrt(2))) / 2,
        "tanh": lambda x: x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))) / 2,
        "quick": lambda x: x / (1 + np.exp(-1.702 * x)),
    }
    x = np.linspace(-4, 4, 17).astype(np.float32)
    check_op(
        lambda x: ops.gelu(x, approximate),
        x,
        expect=lambda x: forms[approximate](x.astype(np.float64)).astype(np.float32),
    )


@pytest.mark.parametrize("dtype", ["int8", "int16", "int64", "uint8"])
def test_relu_of_integers(dtype: str, check_op: Any) -> None:
    check_op(ops.relu, numbers(3, 4, dtype=dtype), expect=lambda x: np.maximum(x, 0))


def test_prelu(check_op: Any) -> None:
    check_op(
        ops.prelu,
        numbers(2, 3, 4),
        np.array([[0.5], [2], [0]], np.float32),
        expect=lambda x, s: np.where(x < 0, x * s, x),
    )


@pytest.mark.parametrize("name", [*ACTIVATIONS, "gelu", "softmax", "logsoftmax"])
def test_activations_take_floats(name: str, trace_op: Any) -> None:
    if name != "relu":
        with pytest.raises(ValueError, match="floating point numbers"):
            trace_op(getattr(ops, name), numbers(2, 3, dtype="int32"))
