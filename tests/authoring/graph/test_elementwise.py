"""Arithmetic, comparison, logic and functions of each element against numpy."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tidemill.dtype import DType
from tidemill.graph import Graph, TensorType, ops

FLOATS = ["float16", "float32", "float64"]
INTS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
NUMBERS = FLOATS + INTS
FEW = settings(derandomize=True, max_examples=25, deadline=None)
VECTORIZED_ERF = np.vectorize(math.erf, otypes=[np.float64])

BINARY: dict[str, Callable[..., Any]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "minimum": np.minimum,
    "maximum": np.maximum,
    "min": np.minimum,
    "max": np.maximum,
}
COMPARISONS: dict[str, Callable[..., Any]] = {
    "equal": np.equal,
    "not_equal": np.not_equal,
    "greater": np.greater,
    "greater_equal": np.greater_equal,
    "less": np.less,
    "less_equal": np.less_equal,
}
BITWISE: dict[str, Callable[..., Any]] = {
    "bitwise_and": np.bitwise_and,
    "bitwise_or": np.bitwise_or,
    "bitwise_xor": np.bitwise_xor,
}
LOGIC: dict[str, Callable[..., Any]] = {
    "logical_and": np.logical_and,
    "logical_or": np.logical_or,
    "logical_xor": np.logical_xor,
    "add": np.add,
    "mul": np.multiply,
    "equal": np.equal,
    "not_equal": np.not_equal,
}
WHOLE: dict[str, Callable[..., Any]] = {"abs": np.abs, "negate": np.negative, "sign": np.sign}
ROUNDING: dict[str, Callable[..., Any]] = {"ceil": np.ceil, "floor": np.floor, "round": np.round, "trunc": np.trunc}

# Name -> numpy's function, an interval to try, whether float64 has a kernel.
FUNCTIONS: dict[str, tuple[Callable[..., Any], float, float, bool]] = {
    "sqrt": (np.sqrt, -1, 9, True),
    "rsqrt": (lambda x: 1 / np.sqrt(x), 0.1, 9, True),
    "reciprocal": (np.reciprocal, 0.1, 9, True),
    "exp": (np.exp, -5, 5, True),
    "expm1": (np.expm1, -4, 4, True),
    "log": (np.log, -1, 9, True),
    "log1p": (np.log1p, -0.9, 9, True),
    "erf": (lambda x: VECTORIZED_ERF(x).astype(x.dtype), -3, 3, False),
    "sin": (np.sin, -4, 4, True),
    "cos": (np.cos, -4, 4, True),
    "tan": (np.tan, -1.2, 1.2, True),
    "asin": (np.arcsin, -1, 1, False),
    "acos": (np.arccos, -1, 1, False),
    "atan": (np.arctan, -4, 4, False),
    "sinh": (np.sinh, -3, 3, False),
    "cosh": (np.cosh, -3, 3, False),
    "tanh": (np.tanh, -3, 3, True),
    "asinh": (np.arcsinh, -4, 4, False),
    "acosh": (np.arccosh, 1, 9, False),
    "atanh": (np.arctanh, -0.9, 0.9, False),
    "trunc": (np.trunc, -5, 5, True),
    "floor": (np.floor, -5, 5, True),
    "ceil": (np.ceil, -5, 5, True),
    "round": (np.round, -5, 5, True),
    "abs": (np.abs, -5, 5, True),
    "negate": (np.negative, -5, 5, True),
    "sign": (np.sign, -5, 5, True),
}


def numbers(dtype: str, seed: int = 0, shape: tuple[int, ...] = (3, 4)) -> np.ndarray[Any, Any]:
    """All over the range of an integer dtype, with its limits; small floats."""
    rng = np.random.default_rng(seed)
    if "float" in dtype:
        return rng.uniform(-4, 4, shape).astype(dtype)
    info = np.iinfo(dtype)
    drawn = rng.integers(info.min, info.max, shape, dtype=dtype, endpoint=True)
    drawn.flat[:2] = info.min, info.max
    return drawn


@pytest.mark.parametrize("dtype", NUMBERS)
@pytest.mark.parametrize("name", BINARY)
def test_two_numbers_give_what_numpy_gives(name: str, dtype: str, check_op: Any) -> None:
    check_op(getattr(ops, name), numbers(dtype), numbers(dtype, 1, (4,)), expect=BINARY[name])


@pytest.mark.parametrize("dtype", NUMBERS)
def test_all_comparisons_at_once(dtype: str, check_op: Any) -> None:
    left, right = numbers(dtype), numbers(dtype, 1, (1, 4))
    left[0] = right[0]
    check_op(
        lambda x, y: [getattr(ops, name)(x, y) for name in COMPARISONS],
        left,
        right,
        expect=lambda x, y: [oracle(x, y) for oracle in COMPARISONS.values()],
    )


@pytest.mark.parametrize("dtype", INTS)
def test_bits(dtype: str, check_op: Any) -> None:
    check_op(
        lambda x, y: [*(getattr(ops, name)(x, y) for name in BITWISE), ops.bitwise_not(x)],
        numbers(dtype),
        numbers(dtype, 1),
        expect=lambda x, y: [*(oracle(x, y) for oracle in BITWISE.values()), np.invert(x)],
    )


def test_logic_on_bools(check_op: Any) -> None:
    x, y = np.array([[True], [False]]), np.array([True, False])
    check_op(
        lambda x, y: [*(getattr(ops, name)(x, y) for name in LOGIC), ops.logical_not(x)],
        x,
        y,
        expect=lambda x, y: [*(oracle(x, y) for oracle in LOGIC.values()), ~x],
    )


@pytest.mark.parametrize("dtype", NUMBERS)
def test_signs_of_every_dtype(dtype: str, check_op: Any) -> None:
    check_op(
        lambda x: [getattr(ops, name)(x) for name in WHOLE],
        numbers(dtype),
        expect=lambda x: [oracle(x) for oracle in WHOLE.values()],
    )


@pytest.mark.parametrize("dtype", ["int16", "uint8", "int64"])
@pytest.mark.parametrize("name", ROUNDING)
def test_rounding_leaves_integers_alone(name: str, dtype: str, check_op: Any) -> None:
    check_op(getattr(ops, name), numbers(dtype), expect=lambda x: x)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name: str, dtype: str, check_op: Any) -> None:
    oracle, low, high, has_double = FUNCTIONS[name]
    x = np.linspace(low, high, 23).astype(dtype)
    if dtype == "float64" and not has_double:
        with pytest.raises(ValueError, match=r"has no kernel for DType.float64"):
            check_op(getattr(ops, name), x, expect=oracle)
        return
    check_op(getattr(ops, name), x, expect=lambda x: oracle(x.astype(np.float64)).astype(dtype))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_at_the_edges(name: str, check_op: Any) -> None:
    """Infinities, NaN and the poles; asinh of -inf is NaN in ONNX Runtime's kernel."""
    edges = [0.0, 1.0, -1.0, math.inf, math.nan, *([] if name == "asinh" else [-math.inf])]
    check_op(getattr(ops, name), np.array(edges, np.float32), expect=FUNCTIONS[name][0])


@pytest.mark.parametrize("name", ["log1p", "expm1"])
def test_small_numbers_keep_their_digits(name: str, check_op: Any) -> None:
    x = np.array([1e-12, -1e-7, 3e-5, 1e-3, -0.4, 0.5, -0.5, 80], np.float32)
    oracle = FUNCTIONS[name][0]
    check_op(
        getattr(ops, name),
        np.where(x == 80, 80 if name == "expm1" else 1e30, x),
        expect=lambda x: oracle(x.astype(np.float64)).astype(np.float32),
        tolerance=(5e-6, 0),
    )


def test_logaddexp_neither_overflows_nor_loses_infinities(check_op: Any) -> None:
    x = np.array([1000, -1000, -np.inf, np.inf, 0, 1], np.float32)
    y = np.array([1001, -1000, -np.inf, -np.inf, 0, -30], np.float32)
    check_op(ops.logaddexp, x, y, expect=np.logaddexp)


@pytest.mark.parametrize("dtype", FLOATS)
def test_predicates(dtype: str, check_op: Any) -> None:
    x = np.array([1, np.nan, np.inf, -np.inf], dtype)
    check_op(lambda x: [ops.is_nan(x), ops.is_inf(x)], x, expect=lambda x: [np.isnan(x), np.isinf(x)])


def test_nan_wins_between_two_tensors(check_op: Any) -> None:
    x, y = np.array([np.nan, 1, 2], np.float32), np.array([1, np.nan, 3], np.float32)
    check_op(
        lambda x, y: [ops.min(x, y), ops.max(x, y)], x, y, expect=lambda x, y: [np.minimum(x, y), np.maximum(x, y)]
    )


@pytest.mark.parametrize("dtype", [*NUMBERS, "bool"])
def test_where_on_every_dtype(dtype: str, check_op: Any) -> None:
    chosen = numbers(dtype) if dtype != "bool" else np.eye(3, 4, dtype=bool)
    test = np.array([[True], [False], [True]])
    check_op(ops.where, test, chosen, chosen[0], expect=np.where)


def test_where_with_numbers(check_op: Any) -> None:
    check_op(
        lambda x: ops.where(x > 1, x, 0), np.arange(4, dtype=np.uint16), expect=lambda x: np.where(x > 1, x, 0 * x)
    )


@pytest.mark.parametrize("dtype", ["float32", "int16", "uint8"])
@pytest.mark.parametrize(("low", "high"), [(1, 2), (None, 2), (1, None), (None, None), (3, 2)])
def test_clip(dtype: str, low: int | None, high: int | None, check_op: Any) -> None:
    x = np.arange(5).astype(dtype)
    check_op(lambda x: ops.clip(x, low, high), x, expect=lambda x: np.clip(x, low, high).astype(dtype))


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int32", "uint8", "bool"])
def test_true_division_of_integers_is_double(dtype: str, check_op: Any) -> None:
    x, y = np.array([[7], [0], [1]]).astype(dtype), np.array([2, 1, 0, 3]).astype(dtype)
    double = dtype if "float" in dtype else "float64"
    check_op(ops.div, x, y, expect=lambda x, y: x.astype(double) / y.astype(double))


@pytest.mark.parametrize("target", ["bool", "int8", "uint8", "int64", "float16", "float64", "bfloat16"])
@pytest.mark.parametrize("source", ["bool", "int32", "float32", "float16"])
def test_casts(source: str, target: str, check_op: Any) -> None:
    x = np.array([0, 1, 2, 77, 3]).astype(source)
    dtype = DType[target]
    check_op(lambda x: ops.cast(x, dtype), x, expect=lambda x: x.astype(dtype.to_numpy()))


def test_a_wrapping_cast_is_numpy_s(check_op: Any) -> None:
    x = np.array([300, -1, -200], np.int32)
    check_op(lambda x: ops.cast(x, DType.uint8), x, expect=lambda x: x.astype(np.uint8))


@given(data=st.data())
@FEW
def test_shapes_broadcast_as_in_numpy(data: st.DataObject, check_op: Any) -> None:
    shapes = data.draw(hnp.mutually_broadcastable_shapes(num_shapes=2, max_dims=4, min_side=0, max_side=3)).input_shapes
    dtype = data.draw(st.sampled_from(NUMBERS))
    check_op(ops.add, np.ones(shapes[0], dtype), np.ones(shapes[1], dtype), expect=np.add)


@given(data=st.data())
@FEW
def test_three_shapes_broadcast_in_where(data: st.DataObject, check_op: Any) -> None:
    shapes = data.draw(hnp.mutually_broadcastable_shapes(num_shapes=3, max_dims=3, min_side=0, max_side=3)).input_shapes
    x, y = np.zeros(shapes[1], np.float32), np.ones(shapes[2], np.float32)
    check_op(ops.where, np.ones(shapes[0], bool), x, y, expect=np.where)


@given(data=st.data())
@FEW
def test_symbolic_dims_broadcast(data: st.DataObject, check_op: Any) -> None:
    sizes = {"n": data.draw(st.integers(0, 3)), "m": data.draw(st.integers(1, 3))}
    dims = data.draw(st.permutations([("n", "m"), (1, "m"), ("m",), (), ("n", 1)]))[:2]
    arrays = [np.ones([sizes.get(dim, 1) for dim in shape], np.float32) for shape in dims]
    check_op(ops.mul, *arrays, dims=dims, expect=np.multiply)


@pytest.mark.parametrize("op", [ops.add, ops.div, ops.exp, ops.negate, ops.greater, ops.mean, ops.relu, ops.matmul])
def test_eight_bit_floats_are_there_to_store(op: Callable[..., Any], trace_op: Any) -> None:
    x = np.ones((2, 2), ml_dtypes.float8_e4m3fn)
    operands = [x, x] if op in (ops.add, ops.div, ops.greater, ops.matmul) else [x]
    with pytest.raises(ValueError, match="cast"):
        trace_op(op, *operands)


@pytest.mark.parametrize("op", [ops.sin, ops.round, ops.atan])
def test_bfloat16_is_computed_in_float32_where_onnx_has_none(op: Callable[..., Any], check_op: Any) -> None:
    x = np.array([0.5, 1.5, -2.25], ml_dtypes.bfloat16)
    oracle = {ops.sin: np.sin, ops.round: np.round, ops.atan: np.arctan}[op]
    check_op(op, x, expect=lambda x: oracle(x.astype(np.float32)).astype(x.dtype))


def test_a_string_is_no_number() -> None:
    with pytest.raises(ValueError, match=r"takes numbers, not DType.string"):
        Graph("g", lambda x: ops.add(x, x), [TensorType(DType.string, [2])])
