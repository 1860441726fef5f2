from __future__ import annotations

import io
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from tidemill.dtype import DType
from tidemill.errors import InvalidArgument
from tidemill.protocol.npy import from_npy, to_npy


def saved(array: Any, **options: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, array, **options)
    return file.getvalue()


@given(
    npst.arrays(
        st.sampled_from(["<f4", ">f4", "<i8", ">i2", "u1", "?", "<f2", ">f8"]),
        npst.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=3),
    ),
    st.sampled_from("CF"),
)
@settings(max_examples=60, deadline=None)
def test_arrays_of_any_order_are_read(array: Any, order: Any) -> None:
    array = np.asarray(array, order=order)
    found = from_npy(saved(array), DType.from_numpy(array.dtype))
    assert found.dtype == array.dtype.newbyteorder("=")
    np.testing.assert_array_equal(found, array)
    np.testing.assert_array_equal(np.load(io.BytesIO(to_npy(array))), array)


@pytest.mark.parametrize("array", [np.array(["é", "b"]), np.array([b"\xc3\xa9", b"b"])])
def test_text_becomes_bytes(array: Any) -> None:
    assert from_npy(saved(array), DType.string).tolist() == ["é".encode(), b"b"]
    back = to_npy(np.array([["é".encode(), b""]], np.object_))
    assert np.load(io.BytesIO(back)).tolist() == [["é".encode(), b""]]


def test_types_without_a_name_in_numpy_travel_as_their_bytes() -> None:
    array = np.array([1.5, -2], ml_dtypes.bfloat16)
    assert from_npy(saved(array), DType.bfloat16).tolist() == [1.5, -2]


def header(text: str) -> bytes:
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode()


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"", "no .npy file"),
        (b"\x93NUMPY\x04\x00\x00\x00\x00\x00", "version"),
        (saved(np.zeros(3, np.float32))[:-1], "11 bytes of data, expected 12"),
        (saved(np.zeros(3, np.float32)) + b"x", "13 bytes of data"),
        (saved(np.array([{}]), allow_pickle=True), "Python objects"),
        (saved(np.zeros(2, [("a", "i2"), ("b", "i2")])), "no plain descr"),
        (saved(np.zeros(2, np.float64)), "FP64 in the .npy file, expected FP32"),
        (saved(np.zeros(2, np.complex64)), "complex64"),
        (header("{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}"), "must not be negative"),
        (header("{'descr': '<f4', 'fortran_order': False, 'shape': (2**62,)}"), "no plain descr"),
        (header(f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({2**62},)}}"), "larger than any memory"),
        (header("{'descr': 'nonsense', 'fortran_order': False, 'shape': ()}"), "no plain descr"),
        (header("{'descr': 'i4,(2,)i4', 'fortran_order': False, 'shape': ()}"), "no plain descr"),
        (header("{'descr': '<y4', 'fortran_order': False, 'shape': ()}"), "has dtype '<y4'"),
        (header(f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({'1' * 5000},)}}"), "32"),
        (header("{'descr': '<f4', 'fortran_order': False, 'shape': (" + "-" * 5000), "no plain descr"),
        (header("__import__('os').system('true')"), "no plain descr"),
        (header("(" * 5000), "no plain descr"),
        (header("(" * 50_000), "header ends at byte"),
    ],
)
def test_damaged_and_hostile_files(body: bytes, text: str) -> None:
    with pytest.raises(InvalidArgument, match=text):
        from_npy(body, DType.float32)


def test_a_boolean_is_0_or_1() -> None:
    body = saved(np.array([True]))[:-1] + b"\x02"
    with pytest.raises(InvalidArgument, match="neither 0 nor 1"):
        from_npy(body, DType.bool)


def test_text_that_numpy_would_cut_is_not_written() -> None:
    with pytest.raises(InvalidArgument, match="zero byte"):
        to_npy(np.array([b"a\0"], np.object_))
