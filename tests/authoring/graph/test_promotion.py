"""Which dtype two operands meet in, and which Python numbers a tensor takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tidemill.dtype import DType
from tidemill.graph import Graph, TensorType, ops

# The seed's rule: the dtype of one operand, if it holds every value of the other; "" is refused.
MEETINGS = [
    ("bool", "uint8", "uint8"),
    ("bool", "float16", "float16"),
    ("bool", "float32", "float32"),
    ("int8", "int16", "int16"),
    ("uint8", "int16", "int16"),
    ("uint8", "int8", ""),
    ("uint32", "int64", "int64"),
    ("uint64", "int64", ""),
    ("int8", "float16", "float16"),
    ("int16", "float16", ""),
    ("int16", "float32", "float32"),
    ("int32", "float32", ""),
    ("int32", "float64", "float64"),
    ("int64", "float64", ""),
    ("int64", "float16", ""),
    ("float16", "float32", "float32"),
    ("float32", "float64", "float64"),
    ("bfloat16", "float32", "float32"),
    ("bfloat16", "float16", ""),
    ("int8", "bfloat16", "bfloat16"),
]


def dtype_of(op: Callable[..., Any], *dtypes: str) -> DType:
    graph = Graph("g", op, [TensorType(DType[name], [2]) for name in dtypes])
    return graph.output_types[0].dtype


@pytest.mark.parametrize(("one", "other", "common"), MEETINGS)
def test_the_wider_dtype_wins_if_it_holds_the_other(one: str, other: str, common: str) -> None:
    for left, right in ((one, other), (other, one)):
        if common:
            assert dtype_of(ops.add, left, right) is DType[common]
        else:
            with pytest.raises(
                ValueError, match=r"Failed to resolve valid dtype: Unsafe cast .*Insert an explicit cast"
            ):
                dtype_of(ops.add, left, right)


def test_promoted_values_are_exact(check_op: Any) -> None:
    x, y = np.array([255, 0], np.uint8), np.array([-32768, 7], np.int16)
    check_op(lambda x, y: x * y, x, y, expect=lambda x, y: x.astype(np.int16) * y)


@pytest.mark.parametrize(
    ("dtype", "number"),
    [
        ("float32", 1),
        ("float32", 1.5),
        ("float32", True),
        ("float32", np.float64(0.1)),
        ("float32", np.ones(2, np.float64)),
        ("float16", 2048),
        ("float16", float("inf")),
        ("float32", float("nan")),
        ("int8", -128),
        ("int8", np.int64(127)),
        ("uint8", 255),
        ("uint64", 2**64 - 1),
        ("int64", np.array([1, 2], np.int32)),
        ("bool", True),
    ],
)
def test_a_number_takes_the_tensor_s_dtype_from_either_side(dtype: str, number: Any) -> None:
    assert dtype_of(lambda x: x + number, dtype) is DType[dtype]
    if not isinstance(number, (np.ndarray, np.generic)):
        assert dtype_of(lambda x: number + x, dtype) is DType[dtype]


@pytest.mark.parametrize(
    ("dtype", "number", "text"),
    [
        ("int32", 1.5, "Can't promote python float to dtype(DType.int32)"),
        ("int32", 1.0, "Can't promote python float to dtype(DType.int32)"),
        ("int32", np.float32(1), "Can't promote numpy float to dtype(DType.int32)"),
        ("uint8", -1, "Can't promote python int with value (-1) to dtype(DType.uint8). It would lose precision."),
        ("uint8", 256, "Can't promote python int with value (256)"),
        ("int64", 2**63, "Can't promote python int with value (9223372036854775808)"),
        ("float16", 2049, "It would lose precision."),
        ("float32", 2**24 + 1, "It would lose precision."),
        ("float16", 70000.0, "beyond the range of dtype(DType.float16)"),
        ("float32", 1e39, "beyond the range of dtype(DType.float32)"),
        ("bool", 1, "Can't promote python int to dtype(DType.bool)"),
        ("bool", 0.5, "Can't promote python float to dtype(DType.bool)"),
    ],
)
def test_a_number_that_does_not_fit_is_refused(dtype: str, number: Any, text: str) -> None:
    with pytest.raises(ValueError, match="Unsafe cast") as caught:
        dtype_of(lambda x: ops.add(x, number), dtype)
    assert text in str(caught.value)


@pytest.mark.parametrize("number", ["a", 1j, None, [1, 2]])
def test_what_is_no_number_is_refused(number: Any) -> None:
    with pytest.raises(TypeError):
        dtype_of(lambda x: ops.add(x, number), "float32")


def test_two_numbers_have_no_dtype() -> None:
    with pytest.raises(TypeError, match=r"Use ops\.constant"):
        dtype_of(lambda x: ops.add(1, 2), "float32")


def test_dims_that_differ_are_named() -> None:
    types = [TensorType(DType.float32, ["batch", 4]), TensorType(DType.float32, ["other", 4])]
    with pytest.raises(ValueError, match=r"axis 0 \(value batch\) .*axis 0 \(value other\) are neither") as caught:
        Graph("g", ops.add, types)
    assert "Insert an explicit rebind" in str(caught.value)
