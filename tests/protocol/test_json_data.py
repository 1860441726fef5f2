"""Tensors as JSON: exact round trips, and refusal of what a dtype cannot hold."""

from __future__ import annotations

import json
import math
from typing import Any

import ml_dtypes
import numpy as np
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tidemill.dtype import DType
from tidemill.errors import InvalidArgument
from tidemill.protocol.json_data import from_json, to_json

INTEGERS = [dtype for dtype in DType if dtype.is_integral()]
FLOATS = [dtype for dtype in DType if dtype.is_float()]


def written(array: np.ndarray) -> Any:
    return json.loads(orjson.dumps(to_json(array)), parse_constant=pytest.fail)


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda dtype: dtype.name)
@settings(max_examples=25)
@given(data=st.data())
def test_finite_floats_round_trip_exactly(dtype: DType, data: st.DataObject) -> None:
    bits = data.draw(hnp.arrays(f"u{dtype.size_in_bytes}", st.integers(0, 8)))
    array = bits.view(dtype.to_numpy())
    array = array[np.isfinite(array.astype(np.float64))]
    back = from_json(written(array), dtype, array.shape)
    assert back.tobytes() == array.tobytes()


@pytest.mark.parametrize("dtype", INTEGERS, ids=lambda dtype: dtype.name)
def test_integer_limits_round_trip_and_one_more_is_refused(dtype: DType) -> None:
    limits = np.iinfo(dtype.to_numpy())
    array = np.array([limits.min, 0, limits.max], dtype=dtype.to_numpy())
    assert from_json(written(array), dtype, [3]).tolist() == [limits.min, 0, limits.max]
    for value in (int(limits.min) - 1, int(limits.max) + 1):
        with pytest.raises(InvalidArgument, match=f"at index 1 does not fit {dtype.wire}"):
            from_json([0, value], dtype, [2])


@pytest.mark.parametrize(
    ("dtype", "largest", "first_too_large"),
    [
        (DType.float16, 65519.0, 65520.0),
        (DType.bfloat16, 3.39e38, 3.4e38),
        (DType.float32, 3.4028235e38, 3.5e38),
        (DType.float8_e4m3fn, 448, 500),
        (DType.float8_e5m2, 57344, 70000),
    ],
)
def test_numbers_round_to_the_largest_value_but_never_overflow(
    dtype: DType, largest: float, first_too_large: float
) -> None:
    assert from_json([largest], dtype, [1])[0] == ml_dtypes.finfo(dtype.to_numpy()).max
    with pytest.raises(InvalidArgument, match=f"does not fit {dtype.wire}"):
        from_json([0.0, first_too_large], dtype, [2])


def test_half_precision_of_the_known_case() -> None:
    assert written(from_json([1.5, -0.0, 65504], DType.float16, [3])) == [1.5, -0.0, 65504]
    subnormal = from_json([1.5, 3.0e38, 1e-40], DType.bfloat16, [3])
    assert from_json(written(subnormal), DType.bfloat16, [3]).tobytes() == subnormal.tobytes()


@pytest.mark.parametrize("dtype", [DType.float16, DType.float32, DType.float64, DType.bfloat16])
def test_non_finite_is_written_as_null_and_null_read_as_nan(dtype: DType) -> None:
    array = np.array([1.0, np.nan, np.inf, -np.inf]).astype(dtype.to_numpy())
    assert written(array) == [1.0, None, None, None]
    assert np.isnan(from_json([None, 1.0], dtype, [2]).astype(np.float64)).tolist() == [True, False]


def test_texts_round_trip() -> None:
    texts = ["x\0\0", "", "a\0b", "é😀", "\n"]
    array = from_json(texts, DType.string, [5])
    assert array.tolist() == [text.encode() for text in texts]
    assert written(array) == texts


def test_bytes_without_a_json_form_advise_binary() -> None:
    with pytest.raises(InvalidArgument, match=r"output 'y' holds bytes that are not UTF-8.*binary"):
        to_json(np.array([b"\xff\xfe"], dtype=object), name="output 'y'")


@pytest.mark.parametrize("data", [[2.5], [[2.5]], 2.5])
def test_scalar_forms(data: object) -> None:
    array = from_json(data, DType.float32, [])
    assert array.shape == ()
    assert array == 2.5
    assert written(array) == [2.5]


@pytest.mark.parametrize("data", [[1, 2, 3, 4], [[1, 2], [3, 4]], [[[1], [2]], [[3], [4]]]])
def test_nesting_is_flattened_in_order(data: object) -> None:
    assert from_json(data, DType.int32, [2, 2]).tolist() == [[1, 2], [3, 4]]


@pytest.mark.parametrize("data", [[], [[], []]])
def test_zero_rows(data: object) -> None:
    assert from_json(data, DType.float32, [0, 3]).shape == (0, 3)
    assert written(np.empty((0, 3), np.float32)) == []


def _nested(depth: int) -> list[Any]:
    data: list[Any] = [1]
    for _ in range(depth):
        data = [data]
    return data


@pytest.mark.parametrize(
    ("data", "dtype", "shape", "text"),
    [
        ([1, 2], DType.int8, [3], "has 2 values, expected 3"),
        (1, DType.int8, [1], "data is a whole number, expected a list"),
        ({}, DType.int8, [1], "data is an object, expected a list"),
        ([1, [2]], DType.int8, [2], "mixes lists and values"),
        (_nested(200), DType.int8, [1], "deeper than 100"),
        ([1.0], DType.int64, [1], "index 0 is a fraction or beyond 64 bits, which INT64 does not take"),
        ([1, True], DType.int64, [2], "index 1 is a boolean"),
        ([True], DType.float32, [1], "is a boolean, which FP32 does not take"),
        (["1"], DType.float32, [1], "is a string"),
        ([None], DType.int32, [1], "is null"),
        ([0, 1], DType.bool, [2], "is a whole number, which BOOL does not take"),
        ([3], DType.string, [1], "is a whole number, which BYTES does not take"),
        ([{}], DType.string, [1], "is an object"),
        ([], DType.int8, [2**70], "larger than any memory"),
        ([1], DType.int8, [-1], "must not be negative"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(data: object, dtype: DType, shape: list[int], text: str) -> None:
    with pytest.raises(InvalidArgument, match=text) as caught:
        from_json(data, dtype, shape, name="input 'x'")
    assert str(caught.value).startswith("input 'x'")


def test_large_float_lists_are_read_and_written_in_full() -> None:
    array = np.random.default_rng(0).standard_normal(100_000).astype(np.float32)
    assert from_json(written(array), DType.float32, array.shape).tobytes() == array.tobytes()
    assert math.isclose(written(array)[7], float(array[7]), rel_tol=1e-6)
