from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from tidemill.dtype import DType
from tidemill.errors import InvalidArgument, UnprocessableInput
from tidemill.protocol.predict import format_predictions, parse_predict
from tidemill.protocol.types import InferResponse, ModelMetadata, TensorSpec

A, B = TensorSpec("a", DType.float32, ("n", 2)), TensorSpec("b", DType.string, ("n",))
ONE, TWO = (ModelMetadata("m", ("1",), "p", inputs, ()) for inputs in ((A,), (A, B)))


def test_rows_of_one_input() -> None:
    request, by_rows = parse_predict(b'{"instances": [[1, 2], [3, 4]]}', ONE)
    assert by_rows
    assert request.inputs["a"].tolist() == [[1, 2], [3, 4]]


def test_rows_of_several_inputs() -> None:
    rows = [{"a": [1, 2], "b": "x"}, {"a": [3, 4], "b": "y"}]
    request, _ = parse_predict(json.dumps({"instances": rows}).encode(), TWO)
    assert request.inputs["a"].tolist() == [[1, 2], [3, 4]]
    assert request.inputs["b"].tolist() == [b"x", b"y"]


@pytest.mark.parametrize("inputs", [[[1, 2]], {"a": [[1, 2]]}])
def test_whole_tensors(inputs: Any) -> None:
    request, by_rows = parse_predict(json.dumps({"inputs": inputs}).encode(), ONE)
    assert (by_rows, request.inputs["a"].tolist()) == (False, [[1, 2]])


@pytest.mark.parametrize(
    ("body", "model", "text"),
    [
        ({}, ONE, "has no data"),
        ({"instances": [], "inputs": []}, ONE, "instances and inputs"),
        ({"instances": 3}, ONE, "not a list of rows"),
        ({"instances": [[1, 2], [3]]}, ONE, r"lengths \[1, 2\]"),
        ({"instances": [[1, [2]]]}, ONE, "mixes"),
        ({"instances": [{"a": [1, 2]}, [3, 4]]}, ONE, "row 1"),
        ({"instances": [[1, 2], {"a": [1, 2]}]}, ONE, "row 0"),
        ({"instances": [{"a": [1, 2]}, {"b": "x"}]}, TWO, "row 1"),
        ({"instances": [{"c": 1}]}, ONE, "unknown input 'c'"),
        ({"instances": [[1, 2]]}, TWO, "exactly one; model 'm' has 'a', 'b'"),
        ({"instances": [["x", "y"]]}, ONE, "input 'a'"),
    ],
)
def test_wrong_bodies(body: Any, model: ModelMetadata, text: str) -> None:
    with pytest.raises(InvalidArgument, match=text):
        parse_predict(json.dumps(body).encode(), model)


def test_nesting_without_end_is_refused() -> None:
    with pytest.raises(InvalidArgument):
        parse_predict(b'{"instances": ' + b"[" * 900 + b"]" * 900 + b"}", ONE)


Y, Z = np.float32([[1, 2], [3, 4]]), np.array([b"x", b"y"], np.object_)


@pytest.mark.parametrize(
    ("outputs", "by_rows", "expected"),
    [
        ({"y": Y}, True, {"predictions": [[1, 2], [3, 4]]}),
        ({"y": Y}, False, {"outputs": [[1, 2], [3, 4]]}),
        ({"y": Y, "z": Z}, True, {"predictions": [{"y": [1, 2], "z": "x"}, {"y": [3, 4], "z": "y"}]}),
        ({"y": Y, "z": Z}, False, {"outputs": {"y": [[1, 2], [3, 4]], "z": ["x", "y"]}}),
        ({"y": Y[:0]}, True, {"predictions": []}),
        ({"y": np.float32(2)}, False, {"outputs": 2}),
    ],
)
def test_answers(outputs: Any, by_rows: bool, expected: Any) -> None:
    assert json.loads(format_predictions(InferResponse("m", "1", outputs), by_rows=by_rows)) == expected


@pytest.mark.parametrize("other", [np.float32(1), np.float32([1])])
def test_outputs_that_have_no_rows(other: Any) -> None:
    with pytest.raises(UnprocessableInput, match="one row an instance"):
        format_predictions(InferResponse("m", "1", {"y": Y, "z": other}), by_rows=True)
