"""Small real models, written as ONNX text, and a bundle with a layer stack."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np
import onnx
import pytest
from onnx import TensorProto, parser

from tidemill.bundle import Bundle, GraphPart
from tidemill.dtype import DType
from tidemill.engine.session import SessionOptions, open_session
from tidemill.protocol.types import TensorSpec

_HEADER = '<ir_version: 10, opset_import: ["" : 21]>\n'

LAYERS, WIDTH = 3, 32
_STACK = """<ir_version: 10, opset_import: ["" : 21, "f" : 1]>
stack (float[batch, 32] x) => (float[batch, 32] y) {
    a = f.layer (x, w0) b = f.layer (a, w1) y = f.layer (b, w2)
}
<domain: "f", opset_import: ["" : 21]>
layer (x, w) => (y) { h = MatMul (x, w) [tanh] y = Tanh (h) }"""


@dataclass(frozen=True)
class Graph:
    """A traced graph, written by hand."""

    name: str
    input_specs: tuple[TensorSpec, ...]
    output_specs: tuple[TensorSpec, ...]
    content: bytes
    weight_specs: MappingProxyType = field(default_factory=lambda: MappingProxyType({}))
    updates: MappingProxyType = field(default_factory=lambda: MappingProxyType({}))
    custom_extensions: tuple = ()

    def to_model_bytes(self):
        return self.content


@pytest.fixture
def graph_of():
    """Makes a traced graph."""
    return Graph


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


@pytest.fixture
def stack(tmp_path):
    """A bundle of three layers that share a function, with their weights in a safetensors file."""
    model = parser.parse_model(_STACK)
    rng = np.random.default_rng(0)
    weights = {f"w{n}": rng.standard_normal((WIDTH, WIDTH)).astype(np.float32) for n in range(LAYERS)}
    for n, call in enumerate(model.graph.node):
        call.name = f"layers.{n}"
    for name in weights:
        tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=(WIDTH, WIDTH))
        tensor.data_location = TensorProto.EXTERNAL
        model.graph.initializer.append(tensor)
    x, y = (TensorSpec(name, DType.float32, ("batch", WIDTH)) for name in "xy")
    return Bundle("stack", {"main": GraphPart(model, (x,), (y,))}, weights).write(tmp_path / "stack" / "1")


@pytest.fixture
def linear(model_bytes):
    """y = x @ l_weight for x [batch, 4]."""
    content = model_bytes(
        "g (float[batch, 4] x, float[4, 4] l_weight) => (float[batch, 4] y) { y = MatMul(x, l_weight) }"
    )
    x, y = TensorSpec("x", DType.float32, ("batch", 4)), TensorSpec("y", DType.float32, ("batch", 4))
    return Graph(
        "enc", (x,), (y,), content, MappingProxyType({"l_weight": TensorSpec("l_weight", DType.float32, (4, 4))})
    )


@pytest.fixture
def weight():
    return np.eye(4, dtype=np.float32)
