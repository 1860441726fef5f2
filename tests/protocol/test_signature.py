"""Requests against a model's signature: every disagreement is found and named."""

from __future__ import annotations

import numpy as np
import pytest

from tidemill.dtype import DType
from tidemill.errors import InvalidArgument
from tidemill.protocol.signature import check_inputs, check_names
from tidemill.protocol.types import TensorSpec

IDS = TensorSpec("ids", DType.int64, ("batch", "seq"))
MASK = TensorSpec("mask", DType.int64, ("batch", "seq"))
X = TensorSpec("x", DType.float32, ("batch", 3))
SCALAR = TensorSpec("s", DType.float32, ())


def zeros(*shape: int, dtype: str = "int64") -> np.ndarray:
    return np.zeros(shape, dtype)


def test_symbols_are_bound_to_sizes() -> None:
    assert check_inputs([IDS, MASK], {"mask": zeros(2, 5), "ids": zeros(2, 5)}) == {"batch": 2, "seq": 5}


def test_free_dims_take_any_size_and_bind_nothing() -> None:
    spec = TensorSpec("x", DType.float32, ("", ""))
    assert check_inputs([spec], {"x": zeros(0, 7, dtype="float32")}) == {}


@pytest.mark.parametrize(
    ("specs", "inputs", "text"),
    [
        ([IDS], {}, r"missing input ids: INT64\[batch, seq\]; given were none"),
        ([IDS], {"idz": zeros(1, 1)}, "unknown input 'idz', did you mean 'ids'"),
        ([IDS], {"other": zeros(1, 1)}, "unknown input 'other'; the model has 'ids'"),
        ([X], {"x": zeros(1, 3)}, "input 'x' has datatype INT64, expected FP32"),
        ([IDS], {"ids": zeros(3)}, r"input 'ids' has shape \[3\] of rank 1, expected \[batch, seq\] of rank 2"),
        ([SCALAR], {"s": zeros(1, dtype="float32")}, r"input 's' has shape \[1\] of rank 1, expected \[\] of rank 0"),
        ([X], {"x": zeros(2, 4, dtype="float32")}, "input 'x' has size 4 on axis 1, expected 3"),
        ([IDS, MASK], {"ids": zeros(2, 5), "mask": zeros(2, 4)}, "dim 'seq' is 5 in input 'ids' and 4 in input 'mask'"),
        ([IDS, X], {"ids": zeros(2, 5), "x": zeros(1, 3, dtype="float32")}, "dim 'batch' is 2 in input 'ids' and 1"),
    ],
)
def test_disagreements_are_named(specs: list[TensorSpec], inputs: dict[str, np.ndarray], text: str) -> None:
    with pytest.raises(InvalidArgument, match=text):
        check_inputs(specs, inputs)


def test_names_of_outputs() -> None:
    check_names("output", ["y", "z"], ["z"])
    with pytest.raises(InvalidArgument, match="unknown output 'w'; the model has 'y', 'z'"):
        check_names("output", ["y", "z"], ["w"])
