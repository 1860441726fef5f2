"""Division, remainder and power of numbers of every dtype; none of them can end the process."""

from __future__ import annotations

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

SIGNED = ["int8", "int16", "int32", "int64"]
UNSIGNED = ["uint8", "uint16", "uint32", "uint64"]
INTS = SIGNED + UNSIGNED
FEW = settings(derandomize=True, max_examples=30, deadline=None)


def both(x: Any, y: Any) -> list[Any]:
    return [x // y, x % y, x // y * y + x % y]


def numpy_both(x: Any, y: Any) -> list[Any]:
    return [x // y, x % y, x]


@pytest.mark.parametrize("dtype", [*SIGNED, "float16", "float32", "float64"])
def test_quotients_round_down_and_remainders_take_the_divisor_s_sign(dtype: str, check_op: Any) -> None:
    x, y = np.array([[8], [-8], [7], [-7], [0]], dtype), np.array([-3, 3, -2, 2, 1, -1], dtype)
    check_op(both, x, y, expect=lambda x, y: [x // y, x % y, x + 0 * y])


@pytest.mark.parametrize("dtype", UNSIGNED)
def test_unsigned_quotients(dtype: str, check_op: Any) -> None:
    x, y = np.array([[8], [255], [0]], dtype), np.array([3, 1, 255], dtype)
    check_op(both, x, y, expect=lambda x, y: [x // y, x % y, x + 0 * y])


@pytest.mark.parametrize("dtype", SIGNED)
def test_the_smallest_integer_over_minus_one_wraps(dtype: str, check_op: Any) -> None:
    x = np.array([np.iinfo(dtype).min, np.iinfo(dtype).max, 5], dtype)
    y = np.full(3, -1, dtype)
    for divisor in (y, y[:1], y[0]):
        check_op(lambda x, y: [x // y, x % y], x, divisor, expect=lambda x, y: [-x, 0 * x])
    check_op(lambda x: [x // -1, x % -1], x, expect=lambda x: [-x, 0 * x])


@pytest.mark.parametrize("op", [lambda x, y: x // y, lambda x, y: x % y])
@pytest.mark.parametrize("dtype", INTS)
def test_an_integer_by_zero_is_the_request_s_fault(op: Callable[..., Any], dtype: str, run_op: Any) -> None:
    x = np.array([1, 2], dtype)
    for zero in (np.array([1, 0], dtype), np.array(0, dtype)):
        with pytest.raises(UnprocessableInput, match="by zero"):
            run_op(op, x, zero)
    with pytest.raises(UnprocessableInput, match="by zero"):
        run_op(op, np.array(2, dtype), np.array([1, 0], dtype))


def test_a_float_by_zero_is_infinite_or_nan(check_op: Any) -> None:
    x = np.array([1, -1, 0, np.inf, np.nan, -5, 5], np.float32)
    y = np.array([0, 0, 0, 2, 2, np.inf, -np.inf], np.float32)
    check_op(lambda x, y: [x // y, x % y, x / y], x, y, expect=lambda x, y: [x // y, x % y, x / y])


def test_a_quotient_that_would_round_up_does_not(check_op: Any) -> None:
    x = np.array([1.0, 0.3, 6.0, -1.0, 1e30], np.float64)
    y = np.array([0.1, 0.1, 0.2, 0.1, 3.0], np.float64)
    check_op(lambda x, y: [x // y, x % y], x, y, expect=lambda x, y: [x // y, x % y])


@given(data=st.data())
@FEW
def test_integers_divide_as_in_numpy(data: st.DataObject, check_op: Any) -> None:
    dtype = data.draw(st.sampled_from(INTS))
    x = data.draw(hnp.arrays(dtype, (4,)))
    y = data.draw(hnp.arrays(dtype, (4,))) | np.array(1, dtype)
    check_op(lambda x, y: [x // y, x % y], x, y, expect=lambda x, y: [x // y, x % y])


@given(data=st.data())
@FEW
def test_floats_divide_as_in_numpy(data: st.DataObject, check_op: Any) -> None:
    dtype = data.draw(st.sampled_from(["float32", "float64"]))
    width = 32 if dtype == "float32" else 64
    elements = st.floats(-64, 64, width=width, allow_subnormal=False).map(lambda x: round(x * 16) / 16)
    x = data.draw(hnp.arrays(dtype, (4,), elements=elements))
    y = data.draw(hnp.arrays(dtype, (4,), elements=elements))
    check_op(lambda x, y: [x // y, x % y], x, y, expect=lambda x, y: [x // y, x % y])


@pytest.mark.parametrize("dtype", INTS)
def test_python_numbers_on_either_side(dtype: str, check_op: Any) -> None:
    x = np.array([1, 2, 3, 7], dtype)
    check_op(
        lambda x: [7 // x, x // 2, 7 % x, x % 3, *divmod(x, 2), 1 / x, x / 2, x**2, 2**x],
        x,
        expect=lambda x: [7 // x, x // 2, 7 % x, x % 3, *divmod(x, 2), 1 / x.astype("float64"), x / 2.0, x**2, 2**x],
    )


def test_integers_wrap_and_bools_add_up(check_op: Any) -> None:
    check_op(lambda x: x - 1, np.array([0, 1], np.uint8), expect=np.array([255, 0], np.uint8))
    check_op(lambda x: True + x, np.array([False, True]), expect=np.array([True, True]))


@pytest.mark.parametrize("op", [lambda x: 2.0**x, lambda x: x**0.5, lambda x: x + 0.5, lambda x: 0.5 // x])
def test_a_python_float_never_widens_integers(op: Callable[..., Any]) -> None:
    with pytest.raises(ValueError, match=r"Can't promote python float to dtype\(DType.int32\)"):
        Graph("g", op, [TensorType(DType.int32, [2])])


def test_a_python_float_takes_the_tensor_s_width(check_op: Any) -> None:
    x = np.array([1, 4, 9], np.float16)
    check_op(lambda x: [x**0.5, x * 0.1], x, expect=lambda x: [x ** np.float16(0.5), x * np.float16(0.1)])


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_powers_of_floats(dtype: str, check_op: Any) -> None:
    x, y = np.array([[0.5], [2], [-3], [0]], dtype), np.array([2, -1, 0, 0.5], dtype)
    check_op(ops.pow, x, y, expect=np.power)


@pytest.mark.parametrize("dtype", INTS)
def test_powers_of_integers_are_exact_and_wrap(dtype: str, check_op: Any) -> None:
    x = np.array([[3], [2], [1], [0], [np.iinfo(dtype).max]], dtype)
    y = np.array([0, 1, 2, 5, 40, 63], dtype)
    check_op(ops.pow, x, y, expect=np.power)
    for exponent in (0, 1, 2, 3, 7, 63):
        check_op(lambda x, n=exponent: x**n, x, expect=lambda x, n=exponent: x**n)


@pytest.mark.parametrize("exponent", [-1, 64])
def test_an_exponent_beyond_the_integers_is_refused_or_fails_the_run(exponent: int, run_op: Any) -> None:
    x = np.array([2, 1], np.int64)
    with pytest.raises(ValueError, match="only 0 to 63"):
        run_op(lambda x: x**exponent, x)
    with pytest.raises(UnprocessableInput):
        run_op(ops.pow, x, np.array([1, exponent]))
