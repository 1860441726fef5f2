"""Slices, gathers and scatters against numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tidemill.dtype import DType
from tidemill.errors import UnprocessableInput
from tidemill.graph import Dim, Graph, TensorType, ops

FEW = settings(derandomize=True, max_examples=30, deadline=None)
DTYPES = ["bool", "int8", "int16", "uint16", "uint32", "int64", "uint64", "float16", "float32", "float64"]
REDUCING = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}


def count(*shape: int, dtype: str = "float32") -> np.ndarray[Any, Any]:
    return np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype)


@given(data=st.data())
@FEW
def test_static_slices_are_numpy_s(data: st.DataObject, check_op: Any) -> None:
    x = count(*data.draw(hnp.array_shapes(min_dims=1, max_dims=3, min_side=1, max_side=4)))
    index = data.draw(hnp.basic_indices(x.shape, allow_newaxis=True))
    check_op(lambda x: x[index], x, expect=lambda x: x[index])


@pytest.mark.parametrize(
    "cut",
    [
        slice(5, 5),
        slice(None, 0),
        slice(-1, None),
        slice(None, None, -1),
        slice(10, None),
        slice(-10, 2),
        slice(-10, None, -1),
        slice(1, -5, -1),
        slice(None, None, 2),
    ],
)
@pytest.mark.parametrize("rows", [0, 1, 3])
def test_slices_may_be_empty_or_reach_beyond_the_end(cut: slice, rows: int, check_op: Any) -> None:
    check_op(lambda x: x[cut], count(rows, 4), expect=lambda x: x[cut])


@pytest.mark.parametrize("rows", [0, 1, 3])
def test_slices_of_a_symbolic_axis(rows: int, check_op: Any) -> None:
    check_op(
        lambda x: [
            x[:0],
            x[::-1],
            x[..., None],
            x[(slice(-1, None), "last"), 1:],
            x[(slice(10, None), "beyond"),],
            x[(slice(5, 5), 0),],
            x[:, (slice(None, None, 2), 2)],
        ],
        count(rows, 4),
        dims=[("n", 4)],
        expect=lambda x: [x[:0], x[::-1], x[..., None], x[-1:, 1:], x[10:], x[5:5], x[:, ::2]],
    )


def test_the_size_of_a_symbolic_slice_has_to_be_named() -> None:
    with pytest.raises(ValueError, match=r"name it: \(slice\(1, None, None\), 'name'\)"):
        Graph("g", lambda x: x[1:], [TensorType(DType.float32, ["n"])])


def test_a_named_size_can_be_used_further(check_op: Any) -> None:
    check_op(
        lambda x: ops.broadcast_to(ops.sum(x[(slice(1, None), "rest"),], 0), ["rest", 2]),
        count(4, 2),
        dims=[("n", 2)],
        expect=lambda x: np.broadcast_to(x[1:].sum(0), (3, 2)),
    )


@pytest.mark.parametrize("place", [0, 2, -1, -3])
def test_a_scalar_tensor_is_an_index(place: int, check_op: Any) -> None:
    for dims in (None, [("n", 2), ()]):
        check_op(
            lambda x, i: [x[i], x[i, 1]], count(3, 2), np.int64(place), dims=dims, expect=lambda x, i: [x[i], x[i, 1]]
        )


def test_tensors_and_dims_are_bounds_of_a_named_slice(check_op: Any) -> None:
    check_op(
        lambda x, y, i: [
            x[(slice(i, None), "rest"),],
            x[(slice(None, Dim("m")), "m"),],
            x[(slice(Dim("m"), i), "mid"),],
        ],
        count(5),
        count(2),
        np.int32(3),
        dims=[("n",), ("m",), ()],
        expect=lambda x, y, i: [x[3:], x[:2], x[2:3]],
    )


@pytest.mark.parametrize("index", [3, -4])
def test_an_index_out_of_range(index: int, run_op: Any) -> None:
    with pytest.raises(IndexError, match=r"index on axis 0: Axis out of range .*\[-3, 2\]"):
        run_op(lambda x: x[index], count(3))
    for op in (lambda x, i: x[index], lambda x, i: x[i]):
        with pytest.raises(UnprocessableInput):
            run_op(op, count(3), np.int64(index), dims=[("n",), ()])


@pytest.mark.parametrize("index", [(0, 0, 0), (..., ...), 1.5, "a", slice(None, None, 0)])
def test_what_is_no_index(index: Any, trace_op: Any) -> None:
    with pytest.raises((IndexError, TypeError, ValueError)):
        trace_op(lambda x: x[index], count(2, 3))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("axis", [0, -1])
def test_gather(axis: int, dtype: str, check_op: Any) -> None:
    indices = np.array([[1, 0], [-1, 1]], np.int32)
    check_op(
        lambda x, i: ops.gather(x, i, axis), count(2, 3, dtype=dtype), indices, expect=lambda x, i: np.take(x, i, axis)
    )


def test_gather_nothing_and_a_scalar(check_op: Any) -> None:
    check_op(ops.gather, count(2, 3), np.zeros((0, 2), np.int64), expect=np.zeros((0, 2, 3), np.float32))
    check_op(ops.gather, count(2, 3), np.int64(1), expect=lambda x, i: x[1])


@given(data=st.data())
@FEW
def test_gather_nd(data: st.DataObject, check_op: Any) -> None:
    x = count(2, 3, 4)
    batch = data.draw(st.integers(0, 2))
    depth = data.draw(st.integers(1, 3 - batch))
    inner = data.draw(hnp.array_shapes(min_dims=0, max_dims=2, min_side=0, max_side=2))
    shape = (*x.shape[:batch], *inner, depth)
    indices = np.random.default_rng(0).integers(-2, 2, shape)
    if batch and not inner:
        return
    rows = x.reshape(-1, *x.shape[batch:])
    places = indices.reshape(len(rows) if batch else 1, *inner, depth)
    picked = [row[tuple(np.moveaxis(place, -1, 0))] for row, place in zip(rows if batch else [x], places, strict=True)]
    expected = np.stack(picked).reshape((*indices.shape[:-1], *x.shape[batch + depth :]))
    # onnx.reference reads beyond the front at a negative index.
    check_op(lambda x, i: ops.gather_nd(x, i, batch), x, indices, expect=expected, reference=False)


@pytest.mark.parametrize("op", [ops.gather, ops.gather_nd])
def test_a_gathered_index_out_of_range_fails_the_run(op: Any, run_op: Any) -> None:
    with pytest.raises(UnprocessableInput):
        run_op(op, count(3), np.array([[3]]))
    with pytest.raises(UnprocessableInput):
        run_op(op, count(3), np.array([[-4]]))


def put(x: Any, updates: Any, indices: Any, axis: int, reduce: Any = None) -> Any:
    result = x.copy()
    for place in np.ndindex(indices.shape):
        target = list(place)
        target[axis] = indices[place]
        old = result[tuple(target)]
        result[tuple(target)] = updates[place] if reduce is None else reduce(old, updates[place])
    return result


@pytest.mark.parametrize("axis", [0, -1])
@pytest.mark.parametrize("dtype", DTYPES)
def test_scatter(dtype: str, axis: int, check_op: Any) -> None:
    x, updates = count(3, 4, dtype=dtype), np.array([[7, 8], [9, 1]]).astype(dtype)
    indices = np.array([[0, -1], [2, 0]])
    check_op(lambda x, u, i: ops.scatter(x, u, i, axis), x, updates, indices, expect=lambda x, u, i: put(x, u, i, axis))


@pytest.mark.parametrize("dtype", DTYPES[1:])
@pytest.mark.parametrize("name", REDUCING)
def test_scatter_combines_what_meets(name: str, dtype: str, check_op: Any) -> None:
    x, updates = count(3, 4, dtype=dtype) + np.array(1, dtype), np.array([[7, 8], [9, 1]]).astype(dtype)
    indices = np.array([[0, 0], [2, 2]], np.int32)
    check_op(
        getattr(ops, f"scatter_{name}"),
        x,
        updates,
        indices,
        expect=lambda x, u, i: put(x, u, i, -1, REDUCING[name]),
    )


@pytest.mark.parametrize("dtype", DTYPES)
def test_scatter_nd(dtype: str, check_op: Any) -> None:
    x, updates = count(3, 2, 2, dtype=dtype), np.ones((2, 2), dtype)
    indices = np.array([[0, 1], [-1, 0]], np.int32)
    expected = x.copy()
    expected[[0, -1], [1, 0]] = updates
    check_op(ops.scatter_nd, x, updates, indices, expect=expected)


@pytest.mark.parametrize("dtype", DTYPES[1:])
@pytest.mark.parametrize("name", REDUCING)
def test_scatter_nd_combines_what_meets(name: str, dtype: str, check_op: Any) -> None:
    x, updates, indices = count(3, 2, dtype=dtype), np.full((3, 2), 2, dtype), np.array([[1], [1], [2]])
    expected = x.copy()
    for place, update in zip(indices[:, 0], updates, strict=True):
        expected[place] = REDUCING[name](expected[place], update)
    check_op(getattr(ops, f"scatter_nd_{name}"), x, updates, indices, expect=expected)


def test_scatter_of_nothing_and_of_symbolic_rows(check_op: Any) -> None:
    x = count(2, 3)
    none = np.zeros((0, 3), np.float32), np.zeros((0, 3), np.int64)
    check_op(lambda x, u, i: ops.scatter(x, u, i, 0), x, *none, expect=x)
    check_op(
        lambda x, u, i: ops.scatter_nd_add(x, u, i),
        x,
        np.ones((1, 3), np.float32),
        np.array([[1]]),
        dims=[("n", 3), ("k", 3), ("k", 1)],
        expect=lambda x, u, i: x + np.array([[0], [1]], np.float32),
    )


def test_a_scattered_index_out_of_range_fails_the_run(run_op: Any) -> None:
    x = count(2, 3)
    with pytest.raises(UnprocessableInput):
        run_op(ops.scatter, x, x, np.full((2, 3), 3))
    with pytest.raises(UnprocessableInput):
        run_op(ops.scatter_nd, x, x, np.array([[0], [2]]))
    with pytest.raises(UnprocessableInput, match="greater than input dim"):
        run_op(ops.scatter, x, count(3, 3), np.zeros((3, 3), int), dims=[("n", 3), ("m", 3), ("m", 3)])


@pytest.mark.parametrize(
    ("op", "text"),
    [
        (lambda x, i: ops.gather(x, x), "indices must be int32 or int64"),
        (lambda x, i: ops.gather_nd(x, ops.tile(i, (1, 2))), "within the rank of input"),
        (lambda x, i: ops.gather_nd(x, i, 1), "within the rank of input|must be equal"),
        (lambda x, i: ops.scatter(x, x, i), "must have the rank of input"),
        (lambda x, i: ops.scatter(x, ops.cast(x, DType.float64), i), "updates must have the dtype of input"),
        (lambda x, i: ops.scatter_nd(x, x, i), r"updates must be \[Dim\(1\)\]"),
        (lambda x, i: ops.scatter_add(x > 1, x > 1, ops.cast(x, DType.int64)), "takes numbers, not DType.bool"),
        (lambda x, i: ops.one_hot(x, 3), "indices must be int32 or int64"),
    ],
)
def test_faults_are_named_at_the_call(op: Any, text: str, trace_op: Any) -> None:
    with pytest.raises(ValueError, match=text):
        trace_op(op, count(2, 3), np.array([[0, 1]]))


@pytest.mark.parametrize("dtype", DTYPES)
def test_nonzero(dtype: str, check_op: Any) -> None:
    x = np.array([[0, 1, 2], [0, 0, 1]]).astype(dtype)
    check_op(lambda x: ops.nonzero(x, "nz"), x, expect=np.argwhere)


def test_nonzero_of_nothing_of_nan_and_of_a_scalar(check_op: Any, trace_op: Any) -> None:
    check_op(lambda x: ops.nonzero(x, "nz") * 1, np.zeros((0, 2), bool), expect=np.argwhere)
    check_op(lambda x: ops.nonzero(x, "nz"), np.array([np.nan, 0, -0.0, -1], np.float32), expect=np.argwhere)
    with pytest.raises(ValueError, match="Scalar inputs not supported"):
        trace_op(lambda x: ops.nonzero(x, "nz"), np.float32(1))


@pytest.mark.parametrize(
    "mask", [[[True, False, True], [False, False, True]], [[True, False, True]], [[False] * 3] * 2]
)
def test_masked_scatter(mask: Any, check_op: Any, run_op: Any) -> None:
    x, truth = count(2, 3), np.array(mask)
    expected = x.copy()
    full = np.broadcast_to(truth, x.shape)
    updates = np.arange(9, 16, dtype=np.float32)
    expected[full] = updates[: full.sum()]
    check_op(lambda x, m, u: ops.masked_scatter(x, m, u, "places"), x, truth, updates, expect=expected)
    check_op(lambda x, u: ops.masked_scatter(x, mask, u, "places"), x, updates, expect=expected)
    if full.any():
        with pytest.raises(UnprocessableInput):
            run_op(lambda x, m, u: ops.masked_scatter(x, m, u, "places"), x, truth, updates[:1])


@pytest.mark.parametrize("axis", [-1, 0, 1])
@pytest.mark.parametrize("dtype", ["float32", "int16", "bool", "float64"])
def test_one_hot(dtype: str, axis: int, check_op: Any) -> None:
    indices = np.array([[0, 3], [1, 1], [-1, 2]], np.int32)
    rows = np.eye(4)[np.where(indices == -1, 0, indices)] * (indices >= 0)[..., None]
    expected = np.moveaxis(rows[..., :3], -1, axis).astype(dtype)
    check_op(lambda i: ops.one_hot(i, 3, axis, DType[dtype]), indices, dims=[("n", 2)], expect=expected)


@pytest.mark.parametrize("dtype", ["int8", "int16", "uint16", "int64", "uint32", "float16", "float32", "float64"])
def test_ranking(dtype: str, check_op: Any) -> None:
    x = np.array([[3, 1, 3, 2], [0, 7, 7, 5]], dtype)
    down = np.argsort(-x.astype(np.float64), axis=-1, kind="stable")
    up = np.argsort(x, axis=-1, kind="stable")
    check_op(
        lambda x: [
            *ops.top_k(x, 3),
            *ops.bottom_k(x, 2),
            ops.argsort(x),
            ops.argsort(x, ascending=False),
            ops.sort(x),
            ops.sort(x, False, axis=0),
        ],
        x,
        dims=[("n", 4)],
        expect=lambda x: [
            np.take_along_axis(x, down, -1)[:, :3],
            down[:, :3],
            np.take_along_axis(x, up, -1)[:, :2],
            up[:, :2],
            up,
            down,
            np.sort(x),
            np.sort(x, axis=0)[::-1],
        ],
        reference=False,  # its ties have no order
    )


def test_ranking_nothing_and_too_much(check_op: Any, run_op: Any) -> None:
    check_op(lambda x: ops.sort(x), np.zeros((0,), np.float32), dims=[("n",)], expect=lambda x: x, reference=False)
    check_op(lambda x: ops.top_k(x, 0), count(2, 3), expect=[np.zeros((2, 0), np.float32), np.zeros((2, 0), np.int64)])
    with pytest.raises(ValueError, match="k is 4, axis -1 has 3 elements"):
        run_op(lambda x: ops.top_k(x, 4), count(2, 3))
    with pytest.raises(UnprocessableInput):
        run_op(lambda x: ops.top_k(x, 4), count(2, 3), dims=[("n", "m")])
