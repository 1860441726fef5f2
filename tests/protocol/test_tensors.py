"""Raw bytes and back for every dtype, and the refusal of buffers and shapes that do not fit."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tidemill.dtype import DType
from tidemill.errors import InvalidArgument
from tidemill.protocol.tensors import element_count, from_bytes, to_bytes

FIXED = [dtype for dtype in DType if dtype is not DType.string]
HOSTILE_TEXTS = [b"x\0\0", b"", b"a\0b", "é😀".encode(), b"\n", b"\xff\xfe"]
SHAPES = hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4)


@pytest.mark.parametrize("dtype", FIXED, ids=lambda dtype: dtype.name)
@settings(max_examples=25)
@given(shape=SHAPES, data=st.data())
def test_fixed_size_round_trip_keeps_every_bit(dtype: DType, shape: tuple[int, ...], data: st.DataObject) -> None:
    size = int(np.prod(shape, dtype=int)) * dtype.size_in_bytes
    element = st.integers(0, 1) if dtype is DType.bool else st.integers(0, 255)
    raw = bytes(data.draw(st.lists(element, min_size=size, max_size=size)))
    array = from_bytes(raw, dtype, shape)
    assert array.shape == shape
    assert array.dtype == dtype.to_numpy()
    assert bytes(to_bytes(array, dtype)) == raw


@given(hnp.arrays(np.object_, SHAPES, elements=st.binary(max_size=8), fill=st.nothing()))
def test_bytes_round_trip(array: np.ndarray) -> None:
    back = from_bytes(to_bytes(array, DType.string), DType.string, array.shape)
    assert back.shape == array.shape
    assert back.tolist() == array.tolist()


def test_bytes_layout_is_length_then_content() -> None:
    array = np.array(HOSTILE_TEXTS, dtype=object)
    expected = b"".join(struct.pack("<I", len(text)) + text for text in HOSTILE_TEXTS)
    assert to_bytes(array, DType.string) == expected


@pytest.mark.parametrize("given_array", [np.array(["é", "ab"]), np.array([b"\xc3\xa9", b"ab"])])
def test_numpy_text_arrays_are_written_as_utf8(given_array: np.ndarray) -> None:
    back = from_bytes(to_bytes(given_array, DType.string), DType.string, [2])
    assert back.tolist() == ["é".encode(), b"ab"]


@pytest.mark.parametrize(
    "array",
    [
        np.arange(12, dtype=">f4").reshape(3, 4),
        np.arange(24, dtype=np.float32).reshape(3, 8)[:, ::2],
        np.asfortranarray(np.arange(12, dtype=np.float32).reshape(3, 4)),
        np.arange(12, dtype=np.float32)[::-1],
        np.array(2.5, dtype=np.float32),
        np.empty((0, 3), dtype=np.float32),
    ],
    ids=["big endian", "strided", "fortran", "reversed", "rank 0", "zero rows"],
)
def test_any_layout_is_written_row_major_little_endian(array: np.ndarray) -> None:
    back = from_bytes(to_bytes(array, DType.float32), DType.float32, array.shape)
    np.testing.assert_array_equal(back, array)


def test_reading_aligned_bytes_copies_nothing() -> None:
    raw = bytearray(np.arange(4, dtype=np.int64).tobytes())
    assert np.shares_memory(from_bytes(raw, DType.int64, [4]), np.frombuffer(raw, np.uint8))


def test_reading_unaligned_bytes_yields_an_aligned_array() -> None:
    raw = memoryview(b"!" + np.arange(4, dtype=np.int64).tobytes())[1:]
    array = from_bytes(raw, DType.int64, [4])
    assert array.flags.aligned
    assert array.tolist() == [0, 1, 2, 3]


def test_writing_a_contiguous_array_copies_nothing() -> None:
    array = np.arange(4, dtype=np.float32)
    assert np.shares_memory(np.frombuffer(to_bytes(array, DType.float32), np.uint8), array)


def _element(length: int, content: bytes) -> bytes:
    return struct.pack("<I", length) + content


@pytest.mark.parametrize(
    ("raw", "dtype", "shape", "text"),
    [
        (b"\0" * 11, DType.float32, [3], "has 11 bytes, expected 12"),
        (b"\0" * 13, DType.float32, [3], "has 13 bytes, expected 12"),
        (b"", DType.float32, [], "has 0 bytes, expected 4"),
        (b"\2", DType.bool, [1], "neither 0 nor 1"),
        (b"", DType.float32, [-1], "must not be negative"),
        (b"", DType.int8, [2**63], "larger than any memory"),
        (b"", DType.int64, [2**40, 2**40], "larger than any memory"),
        (b"", DType.int64, [0, 2**61], "larger than any memory"),
        (b"", DType.int8, [1] * 33, "at most 32"),
        (b"", DType.string, [2**50], "too few for"),
        (_element(1, b"a"), DType.string, [2], "too few for 2 BYTES elements"),
        (_element(3, b"abc") + b"\1\0", DType.string, [2], "ends inside the length of element 1"),
        (_element(9, b"abc"), DType.string, [1], "element 0 claims 9 bytes, 3 are left"),
        (_element(0xFFFFFFFF, b""), DType.string, [1], "element 0 claims 4294967295 bytes, 0 are left"),
        (_element(1, b"a") + _element(1, b"b"), DType.string, [1], "5 bytes after its 1 elements"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(raw: bytes, dtype: DType, shape: list[int], text: str) -> None:
    with pytest.raises(InvalidArgument, match=text) as caught:
        from_bytes(raw, dtype, shape, name="input 'x'")
    assert str(caught.value).startswith("input 'x'")


@pytest.mark.parametrize(
    ("array", "dtype", "text"),
    [
        (np.zeros(2), DType.float32, "holds FP64, expected FP32"),
        (np.array([b"a", 3], dtype=object), DType.string, "element 1 is of type int"),
    ],
)
def test_writing_never_casts(array: np.ndarray, dtype: DType, text: str) -> None:
    with pytest.raises(InvalidArgument, match=text):
        to_bytes(array, dtype)


def test_element_count_of_scalar_and_empty() -> None:
    assert element_count([]) == 1
    assert element_count([0, 3]) == 0
