"""Operators that move elements: reshapes, permutations, repeats, padding, bands."""

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

FEW = settings(derandomize=True, max_examples=25, deadline=None)
DTYPES = ["bool", "int8", "int16", "uint16", "uint32", "int64", "uint64", "float16", "float32", "float64"]


def count(*shape: int, dtype: str = "float32") -> np.ndarray[Any, Any]:
    return np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype)


@pytest.mark.parametrize("rows", [0, 3])
def test_zero_rows_take_every_reshape(rows: int, check_op: Any) -> None:
    check_op(
        lambda x: [
            x.reshape((-1, 2, 2)),
            x.reshape((x.shape[0], -1)),
            x.reshape((x.shape[0], 2, 2)).reshape((x.shape[0], -1)),
            ops.flatten(x),
            x.reshape((2, x.shape[0], 2)),
        ],
        count(rows, 4),
        dims=[("n", 4)],
        expect=lambda x: [x.reshape(rows, 2, 2), x, x, x.reshape(rows * 4), x.reshape(2, rows, 2)],
    )


def test_a_zero_is_a_size_of_zero(check_op: Any, trace_op: Any) -> None:
    check_op(lambda x: x.reshape((3, 0)), count(0, 4), expect=lambda x: x.reshape(3, 0))
    check_op(lambda x: x.reshape((0, x.shape[1])), count(0, 4), dims=[(0, "m")], expect=lambda x: x)
    for shape in [(0, -1), (-1, 0), (-1, -1), (-1, 3)]:
        with pytest.raises(ValueError, match=r"\[reshape\] -1 must be one dim"):
            trace_op(lambda x, shape=shape: x.reshape(shape), count(2, 4))
    with pytest.raises(ValueError, match="number of elements must match"):
        trace_op(lambda x: x.reshape((0,)), count(2, 4))


@given(data=st.data())
@FEW
def test_reshape_of_symbolic_dims(data: st.DataObject, check_op: Any) -> None:
    n, m = data.draw(st.integers(0, 3)), data.draw(st.integers(0, 3))
    shape = data.draw(st.sampled_from([("n", -1), (-1, 4), ("m", "n", 4), (2, "n", "m", 2), ("n", "m", -1), (-1,)]))
    sizes = {"n": n, "m": m}
    real = [sizes.get(dim, dim) for dim in shape]
    if -1 in real:
        rest = [{"n": "n", "m": "m"}.get(dim, dim) for dim in shape if dim != -1]
        left = [dim for dim in ("n", "m") if dim not in rest]
        known = int(np.prod([dim for dim in rest if isinstance(dim, int)], dtype=int))
        real[real.index(-1)] = int(np.prod([sizes[dim] for dim in left], dtype=int)) * 4 // known
    check_op(lambda x: x.reshape(shape), count(n, m, 4), dims=[("n", "m", 4)], expect=lambda x: x.reshape(real))


@given(data=st.data())
@FEW
def test_permutations(data: st.DataObject, check_op: Any) -> None:
    x = count(*data.draw(hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=3)))
    order = data.draw(st.permutations(range(x.ndim)))
    check_op(lambda x: ops.permute(x, list(order)), x, expect=lambda x: np.transpose(x, order))


def test_axes_may_be_negative(check_op: Any) -> None:
    check_op(
        lambda x: [
            ops.transpose(x, 0, -1),
            ops.unsqueeze(x, -1),
            ops.unsqueeze(x, 0),
            ops.squeeze(ops.unsqueeze(x, 1), 1),
            ops.flatten(x, -2),
            ops.stack([x, x], -1),
            ops.concat([x, x], -2),
            x.T,
        ],
        count(2, 3, 4),
        expect=lambda x: [
            np.swapaxes(x, 0, 2),
            x[..., None],
            x[None],
            x,
            x.reshape(2, 12),
            np.stack([x, x], -1),
            np.concatenate([x, x], -2),
            np.swapaxes(x, 1, 2),
        ],
    )


def test_a_scalar_flattens_to_one_element(check_op: Any) -> None:
    check_op(ops.flatten, np.float32(3), expect=lambda x: x.reshape(1))


@pytest.mark.parametrize("dtype", DTYPES)
def test_moves_in_every_dtype(dtype: str, check_op: Any) -> None:
    check_op(
        lambda x: [
            ops.broadcast_to(x, (2, 2, 3)),
            ops.tile(x, (2, 1)),
            ops.concat([x, x]),
            *ops.split(x, [1, 2], 1),
            ops.pad(x, [1, 0, 0, 2]),
            ops.repeat_interleave(x, 2, axis=0),
            x.T,
            x[::-1],
        ],
        count(2, 3, dtype=dtype),
        expect=lambda x: [
            np.broadcast_to(x, (2, 2, 3)),
            np.tile(x, (2, 1)),
            np.concatenate([x, x]),
            x[:, :1],
            x[:, 1:],
            np.pad(x, ((1, 0), (0, 2))),
            np.repeat(x, 2, 0),
            x.T,
            x[::-1],
        ],
    )


@given(data=st.data())
@FEW
def test_broadcast_to(data: st.DataObject, check_op: Any) -> None:
    shapes = data.draw(hnp.mutually_broadcastable_shapes(num_shapes=1, max_dims=3, min_side=0, max_side=3))
    x = count(*shapes.input_shapes[0])
    check_op(
        lambda x: ops.broadcast_to(x, shapes.result_shape), x, expect=lambda x: np.broadcast_to(x, shapes.result_shape)
    )


def test_broadcast_to_symbols_and_to_a_tensor(check_op: Any) -> None:
    x, y = count(1, 3), count(2, 3)
    dims = [(1, 3), ("n", 3)]
    check_op(lambda x, y: ops.broadcast_to(x, y.shape), x, y, dims=dims, expect=np.broadcast_to(x, (2, 3)))
    check_op(
        lambda x, s: ops.broadcast_to(x, s, out_dims=["n", "m"]) + 1,
        x,
        np.array([2, 3], np.int32),
        expect=np.broadcast_to(x, (2, 3)) + 1,
    )


def test_concat_of_an_empty_and_a_full_tensor(check_op: Any) -> None:
    check_op(lambda x, y: ops.concat([x, y]), count(0, 2), count(3, 2), expect=lambda x, y: np.concatenate([x, y]))
    check_op(
        lambda x, y: ops.concat([x, y]) * 1,
        count(0, 2),
        count(3, 2),
        dims=[("a", 2), ("b", 2)],
        expect=lambda x, y: np.concatenate([x, y]),
    )


def test_split_into_symbolic_sizes(check_op: Any) -> None:
    x, y = count(5, 2), count(3)
    check_op(
        lambda x, y: ops.split(ops.concat([x, x]), [Dim("n") + 1, Dim("n") - 1]),
        x,
        y,
        dims=[("n", 2), ("m",)],
        expect=lambda x, y: np.split(np.concatenate([x, x]), [6]),
    )
    assert ops.split.__doc__
    check_op(lambda x: [*ops.split(x, []), *ops.chunk(x, 2, 1)], x, expect=lambda x: [x[:, :1], x[:, 1:]])


@pytest.mark.parametrize("repeats", [(2, 3), (1, 1), (1, Dim("n")), ("n", 2)])
def test_tile(repeats: Any, check_op: Any) -> None:
    real = [4 if not isinstance(one, int) else one for one in repeats]
    check_op(lambda x: ops.tile(x, repeats) * 1, count(4, 2), dims=[("n", 2)], expect=lambda x: np.tile(x, real))


@pytest.mark.parametrize("axis", [None, 0, -1])
def test_repeat_interleave(axis: int | None, check_op: Any) -> None:
    for x in (count(3, 2), count(0, 2)):
        for dims in (None, [("n", 2)]):
            check_op(lambda x: ops.repeat_interleave(x, 3, axis), x, dims=dims, expect=lambda x: np.repeat(x, 3, axis))


@pytest.mark.parametrize("repeats", [[1, 0, 2], [0, 0, 0], [2, 2, 2]])
def test_repeat_interleave_by_a_tensor(repeats: list[int], check_op: Any) -> None:
    check_op(
        lambda x, r: ops.repeat_interleave(x, r, axis=0, out_dim="total") * 1,
        count(3, 2),
        np.array(repeats, np.int32),
        expect=lambda x, r: np.repeat(x, r, 0),
    )
    check_op(
        lambda x, r: ops.repeat_interleave(x, r, axis=1, out_dim="total"),
        count(3, 2),
        np.array(2),
        expect=lambda x, r: np.repeat(x, 2, 1),
    )


@pytest.mark.parametrize("mode", ["constant", "reflect", "edge"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_pad(dtype: str, mode: str, check_op: Any) -> None:
    x = count(3, 2, dtype=dtype)
    pairs = ((2, 1), (0, 1))
    fill = {"constant_values": 1} if mode == "constant" else {}
    check_op(lambda x: ops.pad(x, [2, 1, 0, 1], mode, value=1), x, expect=lambda x: np.pad(x, pairs, mode, **fill))


@given(data=st.data())
@FEW
def test_pad_any_shape_by_a_tensor(data: st.DataObject, check_op: Any) -> None:
    x = count(*data.draw(hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3)))
    amounts = data.draw(st.lists(st.integers(0, 2), min_size=2 * x.ndim, max_size=2 * x.ndim))
    pairs = list(zip(amounts[::2], amounts[1::2], strict=True))
    check_op(
        lambda x, v: ops.pad(x, amounts, value=v),
        x,
        np.float32(7),
        dims=[[f"d{axis}" for axis in range(x.ndim)], ()],
        expect=lambda x, v: np.pad(x, pairs, constant_values=7) if pairs else x,
    )


def test_padding_that_an_axis_is_too_small_for(run_op: Any) -> None:
    for mode, size, amount in (("reflect", 2, 2), ("edge", 0, 1), ("reflect", 0, 1)):
        op = lambda x, mode=mode, amount=amount: ops.pad(x, [amount, 0], mode)  # noqa: E731
        with pytest.raises(ValueError, match="is too small for"):
            run_op(op, count(size))
        with pytest.raises(UnprocessableInput):
            run_op(op, count(size), dims=[("n",)])


@pytest.mark.parametrize("arguments", [([1],), ([1, -1],), ([1, 1], "wrap")])
def test_paddings_that_make_no_sense(arguments: Any, trace_op: Any) -> None:
    with pytest.raises(ValueError, match=r"padding"):
        trace_op(lambda x: ops.pad(x, *arguments), count(3))


def band(x: Any, lower: int | None, upper: int | None, exclude: bool) -> Any:
    below = np.arange(x.shape[-2])[:, None] - np.arange(x.shape[-1])
    kept = (below <= (lower if lower is not None else 99)) & (-below <= (upper if upper is not None else 99))
    return np.where(kept != exclude, x, np.zeros_like(x))


@pytest.mark.parametrize("exclude", [False, True])
@pytest.mark.parametrize(("lower", "upper"), [(None, None), (0, 0), (1, None), (None, 0), (2, 1)])
def test_band_part(lower: int | None, upper: int | None, exclude: bool, check_op: Any) -> None:
    x = count(2, 3, 4) + 1
    for dims in (None, [("b", "n", "m")]):
        check_op(
            lambda x: ops.band_part(x, lower, upper, exclude),
            x,
            dims=dims,
            expect=lambda x: band(x, lower, upper, exclude),
        )


@pytest.mark.parametrize("dtype", DTYPES)
def test_band_part_in_every_dtype(dtype: str, check_op: Any) -> None:
    x = np.ones((2, 2), dtype)
    check_op(lambda x: ops.band_part(x, 0, None), x, expect=np.triu)


def test_rebind_is_checked_when_it_runs(run_op: Any, check_op: Any) -> None:
    x = count(4, 2)
    check_op(lambda x: x.rebind(("rows", 2)).reshape((2, "rows")), x, dims=[("n", 2)], expect=x.reshape(2, 4))
    with pytest.raises(UnprocessableInput):
        run_op(lambda x: x.rebind((3, 2)), x, dims=[("n", 2)])


def test_shape_to_tensor(check_op: Any) -> None:
    check_op(
        lambda x: ops.shape_to_tensor((*x.shape, Dim("n") * 2, 7)),
        count(3, 2),
        dims=[("n", 2)],
        expect=np.array([3, 2, 6, 7]),
    )


@pytest.mark.parametrize(
    ("op", "error", "text"),
    [
        (lambda x: ops.squeeze(x, 0), ValueError, "only 1 can be left out"),
        (lambda x: ops.permute(x, [0, 0]), ValueError, "must name each of the 2 axes once"),
        (lambda x: ops.broadcast_to(x, (3, 3)), ValueError, "does not broadcast"),
        (lambda x: ops.broadcast_to(x, (3,)), ValueError, "does not broadcast"),
        (lambda x: ops.concat([]), ValueError, "at least one"),
        (lambda x: ops.concat([x, x.T]), ValueError, "equal in every dim but axis 0"),
        (lambda x: ops.split(x, [1, 2]), ValueError, "must add up to axis 0"),
        (lambda x: ops.split(x, [3, -1]), ValueError, "must add up to axis 0"),
        (lambda x: ops.tile(x, [0, 1]), ValueError, "one positive count"),
        (lambda x: ops.tile(x, [1]), ValueError, "one positive count"),
        (lambda x: ops.repeat_interleave(x, 0), ValueError, "must be positive"),
        (lambda x: ops.repeat_interleave(x, ops.argmax(x, 0), 0), ValueError, "out_dim must be provided"),
        (lambda x: ops.band_part(x, 2), ValueError, r"num_lower is 2, expected None or a number in \[0, 2\)"),
        (lambda x: ops.band_part(x[0]), ValueError, "at least 2 axes"),
        (lambda x: ops.flatten(x, 1, 0), ValueError, "comes after"),
        (lambda x: ops.unsqueeze(x, 4), IndexError, r"in range of \[-3, 2\], but got 4"),
        (lambda x: x.rebind((2,)), ValueError, "must have rank 2"),
    ],
)
def test_faults_are_named_at_the_call(op: Any, error: type[Exception], text: str, trace_op: Any) -> None:
    with pytest.raises(error, match=text):
        trace_op(op, count(2, 3))


def test_an_unknown_symbol_has_no_size() -> None:
    with pytest.raises(ValueError, match="'free' is on no input"):
        Graph("g", lambda x: ops.broadcast_to(x, ("free",)), [TensorType(DType.float32, [1])])
