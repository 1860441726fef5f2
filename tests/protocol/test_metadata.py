"""Metadata and the repository's index as JSON documents."""

from __future__ import annotations

from typing import Any

import pytest

from tidemill.dtype import DType
from tidemill.errors import InferenceFailed
from tidemill.protocol.index import ModelIndex
from tidemill.protocol.metadata import (
    format_index,
    format_model_metadata,
    format_server_metadata,
    parse_index,
    parse_model_metadata,
    parse_server_metadata,
)
from tidemill.protocol.types import ModelMetadata, ServerMetadata, TensorSpec


def test_server_metadata() -> None:
    metadata = ServerMetadata("tidemill", "1.2", ("binary_tensor_data",))
    document = format_server_metadata(metadata)
    assert document == {"name": "tidemill", "version": "1.2", "extensions": ["binary_tensor_data"]}
    assert parse_server_metadata(document) == metadata


def test_model_metadata_shows_free_dims_as_minus_one_and_scalars_as_no_dims() -> None:
    inputs = (TensorSpec("x", DType.float32, ("batch", 3)), TensorSpec("s", DType.bfloat16, ()))
    document = format_model_metadata(ModelMetadata("m", ("1",), "onnxruntime_onnx", inputs, ()))
    assert document == {
        "name": "m",
        "versions": ["1"],
        "platform": "onnxruntime_onnx",
        "inputs": [
            {"name": "x", "datatype": "FP32", "shape": [-1, 3]},
            {"name": "s", "datatype": "BF16", "shape": []},
        ],
        "outputs": [],
    }
    assert parse_model_metadata(document).inputs == (TensorSpec("x", DType.float32, ("", 3)), inputs[1])


def test_index_lists_what_is_known() -> None:
    entries = (ModelIndex("a", "1", "READY"), ModelIndex("b"), ModelIndex("c", "2", "UNAVAILABLE", "unloaded"))
    documents = format_index(entries)
    assert documents == [
        {"name": "a", "version": "1", "state": "READY", "reason": ""},
        {"name": "b"},
        {"name": "c", "version": "2", "state": "UNAVAILABLE", "reason": "unloaded"},
    ]
    assert parse_index(documents) == entries


@pytest.mark.parametrize(
    ("parse", "document"),
    [
        (parse_server_metadata, {"name": "a"}),
        (parse_server_metadata, []),
        (parse_model_metadata, {"name": "a"}),
        (parse_model_metadata, {"name": "a", "inputs": [{"name": "x", "datatype": "ODD", "shape": []}], "outputs": []}),
        (parse_model_metadata, {"name": "a", "inputs": [{"name": "x", "datatype": "FP32"}], "outputs": []}),
        (parse_index, [{}]),
        (parse_index, ["a"]),
    ],
)
def test_documents_against_the_protocol_are_reported(parse: Any, document: Any) -> None:
    with pytest.raises(InferenceFailed, match="not follow the protocol"):
        parse(document)
