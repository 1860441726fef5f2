from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tidemill.bundle.outline import NodeLine, read_outline
from tidemill.errors import InvalidBundle


def _model(calls: int = 3) -> onnx.ModelProto:
    body = [helper.make_node("Add", ["a", "w"], ["s"]), helper.make_node("Relu", ["s"], ["r"], name="last")]
    block = helper.make_function("own", "Block", ["a", "w"], ["r"], body, [helper.make_opsetid("", 21)])
    names = ["x", *(f"v{i}" for i in range(calls - 1)), "y"]
    nodes = [
        helper.make_node("Block", [names[i], "weight"], [names[i + 1]], name=f"layers.{i}", domain="own")
        for i in range(calls)
    ]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 2]) for name in "xy")
    weight = numpy_helper.from_array(np.ones(2, np.float32), "weight")
    graph = helper.make_graph(nodes, "main", [x], [y], [weight])
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("own", 1)]
    return helper.make_model(graph, functions=[block], opset_imports=imports, ir_version=10)


def test_calls_and_functions_are_told_apart() -> None:
    outline = read_outline(_model().SerializeToString())
    assert (outline.inputs, outline.outputs, outline.weights) == (("x",), ("y",), ("weight",))
    assert outline.nodes[1] == NodeLine("Block", "layers.1", "own", ("v0", "weight"), ("v1",))
    (block,) = outline.functions
    assert (block.domain, block.name, block.inputs, block.outputs) == ("own", "Block", ("a", "w"), ("r",))
    assert [node.op for node in block.nodes] == ["Add", "Relu"]
    assert not outline.truncated


@pytest.mark.parametrize(("most", "truncated"), [(2, True), (3, False)])
def test_no_more_nodes_are_read_than_asked_for(most: int, truncated: bool) -> None:
    outline = read_outline(_model().SerializeToString(), most)
    assert len(outline.nodes) == most
    assert outline.truncated is truncated


def test_what_is_no_model_is_told() -> None:
    with pytest.raises(InvalidBundle, match="no ONNX model"):
        read_outline(b"\xff\xff\xff")
    assert read_outline(b"").nodes == ()
