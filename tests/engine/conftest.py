"""Small real models, written as ONNX text."""

from __future__ import annotations

import onnx
import pytest
from onnx import parser

from tidemill.engine.session import SessionOptions, open_session

_HEADER = '<ir_version: 10, opset_import: ["" : 21]>\n'


@pytest.fixture
def model_bytes():
    """Makes checked model bytes from the text of a graph."""

    def make(graph: str) -> bytes:
        model = parser.parse_model(_HEADER + graph)
        onnx.checker.check_model(model, full_check=True)
        return model.SerializeToString()

    return make


@pytest.fixture
def session(model_bytes):
    """Opens a session on the text of a graph."""
    return lambda graph: open_session(model_bytes(graph), SessionOptions(threads=1))
