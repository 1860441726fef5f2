from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from tidemill.dtype import DType
from tidemill.errors import InvalidArgument
from tidemill.protocol.generate import format_generated, parse_generate
from tidemill.protocol.types import InferResponse, ModelMetadata, TensorSpec


def model(*shape: int | str, dtype: DType = DType.float32) -> ModelMetadata:
    return ModelMetadata("m", ("1",), "p", (TensorSpec("x", dtype, shape),), ())


@pytest.mark.parametrize(
    ("shape", "value", "expected"),
    [
        ((), 3, ()),
        (("n",), 3, (1,)),
        (("n",), [1, 2], (2,)),
        (("n", "k"), [1, 2, 3], (1, 3)),
        (("n", 2), [1, 2, 3, 4], (2, 2)),
        ((2, "k"), [1, 2, 3, 4], (2, 2)),
        (("n", "", 3), [1, 2, 3], (1, 1, 3)),
        (("n", 2), [], (0, 2)),
        ((1, 2), [[1, 2]], (1, 2)),
    ],
)
def test_values_fill_the_shape_from_the_right(shape: Any, value: Any, expected: tuple[int, ...]) -> None:
    request = parse_generate(json.dumps({"x": value}).encode(), model(*shape))
    assert request.inputs["x"].shape == expected


def test_other_keys_are_parameters() -> None:
    body = {"x": 1, "id": "7", "timeout": 5, "parameters": {"a": True, "b": "text", "c": 1.5}}
    request = parse_generate(json.dumps(body).encode(), model("n"), model_version="3")
    assert (request.id, request.model_name, request.model_version) == ("7", "m", "3")
    assert request.parameters == {"timeout": 5, "a": True, "b": "text", "c": 1.5}
    assert list(parse_generate(b'{"parameters": {"x": [1]}}', model("n")).inputs) == ["x"]


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"", "not JSON"),
        (b"[1]", "not an object"),
        (b'{"id": 7}', "'id'"),
        (b'{"parameters": [1]}', "'parameters' is not an object"),
        (b'{"x": "a"}', "input 'x'"),
        (b'{"x": [1, 2, 3]}', "input 'x' has 3 values, expected 2"),
        (b'{"y": {"a": 1}}', "parameter 'y' must be"),
        (b'{"triton_x": 1}', "reserved"),
    ],
)
def test_wrong_bodies(body: bytes, text: str) -> None:
    with pytest.raises(InvalidArgument, match=text):
        parse_generate(body, model("n", 2))


def test_answers_are_bare_values_or_flat_lists() -> None:
    text = np.array([["a"]], np.object_)
    outputs = {"a": np.float32([[2.5]]), "b": np.int64([[1], [2]]), "t": text, "none": np.zeros((0, 2), np.float32)}
    answer = json.loads(format_generated(InferResponse("m", "1", outputs, id="7")))
    assert answer == {"model_name": "m", "model_version": "1", "id": "7", "a": 2.5, "b": [1, 2], "t": "a", "none": []}
