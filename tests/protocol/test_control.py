from __future__ import annotations

import base64
from typing import Any

import pytest

from tidemill.errors import InvalidArgument
from tidemill.protocol.control import LoadParameters, read_load_parameters, read_unload_parameters


@pytest.mark.parametrize("content", [b"\x00abc", base64.b64encode(b"\x00abc").decode()])
def test_files_come_as_bytes_or_base64(content: Any) -> None:
    given = {"config": "{}", "file:1/model.onnx": content}
    assert read_load_parameters(given) == LoadParameters({}, {"1/model.onnx": b"\x00abc"})
    assert read_load_parameters({}) == LoadParameters()


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"config": 3}, "'config' is not a string"),
        ({"config": "{"}, "'config' is not JSON"),
        ({"config": "[]"}, "'config' is not a JSON object"),
        ({"conf": "{}"}, "unknown load parameter 'conf'"),
        ({"file:1/model.onnx": b"x"}, "without a config"),
        ({"config": "{}", "file:a": "not base64!"}, "not base64"),
        ({"config": "{}", "file:a": 3}, "no file content"),
    ],
)
def test_wrong_load_parameters(given: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidArgument, match=text):
        read_load_parameters(given)


def test_unload_parameters() -> None:
    assert [read_unload_parameters(given) for given in ({}, {"unload_dependents": True})] == [False, True]
    for wrong in ({"unload_dependents": 1}, {"other": True}):
        with pytest.raises(InvalidArgument):
            read_unload_parameters(wrong)
