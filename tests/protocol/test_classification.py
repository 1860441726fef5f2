from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tidemill.errors import InvalidArgument
from tidemill.protocol.classification import classify


@pytest.mark.parametrize(
    ("values", "dtype", "expected"),
    [
        ([1.1, 3.3, 2.2], np.float32, [b"3.300000:1", b"2.200000:2"]),
        ([1, 3, 2], np.int64, [b"3:1", b"2:2"]),
        ([1, 2**64 - 1, 2], np.uint64, [b"18446744073709551615:1", b"2:2"]),
        ([-128, 127, 0], np.int8, [b"127:1", b"0:2"]),
        ([1.5, 3.5, 2.5], np.float16, [b"3.500000:1", b"2.500000:2"]),
        ([1.5, 3.5, 2.5], ml_dtypes.bfloat16, [b"3.500000:1", b"2.500000:2"]),
        ([5, 5, 5], np.float32, [b"5.000000:0", b"5.000000:1"]),
        ([np.nan, -1, np.inf], np.float32, [b"inf:2", b"-1.000000:1"]),
    ],
)
def test_the_largest_come_first_and_equal_ones_in_order(values: list[Any], dtype: Any, expected: list[bytes]) -> None:
    assert classify(np.array(values, dtype), 2, batched=False).tolist() == expected


def test_each_row_of_a_batch_is_classified_by_itself() -> None:
    named = classify(np.array([[1, 2], [4, 3]], np.int32), 5, batched=True, labels=["cat"])
    assert named.tolist() == [[b"2:1", b"1:0:cat"], [b"4:0:cat", b"3:1"]]


@pytest.mark.parametrize(
    ("shape", "batched", "expected"),
    [((), True, (1,)), ((3, 4), False, (2,)), ((0, 4), True, (0, 2)), ((2, 0), True, (2, 0)), ((3,), True, (3, 1))],
)
def test_shapes(shape: tuple[int, ...], batched: bool, expected: tuple[int, ...]) -> None:
    assert classify(np.zeros(shape, np.float32), 2, batched=batched).shape == expected


@pytest.mark.parametrize(
    ("array", "text"),
    [
        (np.array([b"a"], np.object_), "'y' is BYTES"),
        (np.array([True]), "'y' is BOOL"),
        (np.zeros(1_000_001, np.uint8), "1000001 elements"),
    ],
)
def test_what_has_no_classes(array: Any, text: str) -> None:
    with pytest.raises(InvalidArgument, match=text):
        classify(array, 1, batched=False, name="output 'y'")
