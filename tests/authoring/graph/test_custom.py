from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tidemill.dtype import DType
from tidemill.engine.session import SessionOptions, open_session
from tidemill.graph import DeviceRef, Graph, TensorType, TensorValue, ops
from tidemill.graph.check import check_model
from tidemill.graph.export import to_model
from tidemill.nn import Module

CPU = DeviceRef.CPU()
TYPE = TensorType(DType.float32, ["n", 4])
X = np.arange(8, dtype=np.float32).reshape(2, 4)


def quick(x: TensorValue) -> TensorValue:
    return ops.custom("QuickGelu", CPU, [x], [x.type], {"alpha": 2.0}, domain="com.microsoft")[0]


def test_the_runtime_s_own_operators_need_no_library() -> None:
    model = to_model(Graph("quick", quick, [TYPE]))
    check_model(model)
    assert {(one.domain, one.version) for one in model.opset_import} == {("", 21), ("com.microsoft", 1)}
    (out,) = open_session(model.SerializeToString(), SessionOptions(threads=1)).run({"input0": X}).values()
    np.testing.assert_allclose(out, X / (1 + np.exp(-2 * X)), rtol=1e-5)


def test_a_shared_function_knows_the_operator_s_domain() -> None:
    class Block(Module):
        def __call__(self, x: TensorValue) -> TensorValue:
            return ops.tanh(quick(x) + 1) * 2

    class Blocks(Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.other = Block(), Block()

        def __call__(self, x: TensorValue) -> TensorValue:
            return self.other(self.one(x))

    model = to_model(Blocks().trace(TYPE))
    check_model(model)
    (function,) = model.functions
    assert "com.microsoft" in {one.domain for one in function.opset_import}
    open_session(model.SerializeToString(), SessionOptions(threads=1)).run({"x": X})


def test_an_operator_of_a_library_is_written_as_it_was_asked_for() -> None:
    graph = Graph("own", input_types=[TYPE], custom_extensions=["libops.so"])
    with graph:
        x = graph.inputs[0].tensor
        parameters: dict[str, Any] = {"fast": True, "size": 3, "mode": "left", "to": DType.float16}
        out = ops.custom("Split", CPU, [x], [TensorType(DType.float32, ["m"])], parameters, domain="acme")[0]
        graph.output(out.reshape(["m", 1]))
    model = to_model(graph)
    check_model(model)
    node = model.graph.node[0]
    assert (node.domain, node.op_type) == ("acme", "Split")
    values = {one.name: one.i or one.s.decode() for one in node.attribute}
    assert values == {"fast": 1, "size": 3, "mode": "left", "to": DType.float16.onnx}


def test_a_subgraph_has_its_graph_s_libraries() -> None:
    with Graph("outer", input_types=[TYPE], custom_extensions=["libops.so"]) as graph:
        sub = graph.add_subgraph("sub", lambda x: ops.custom("Own", CPU, [x], [x.type])[0], [TYPE])
        graph.output(*ops.call(sub, graph.inputs[0]))
    assert {one.domain for one in to_model(graph).opset_import} == {"", "custom", "tidemill.functions"}


def test_what_no_library_can_have_is_refused() -> None:
    with Graph("wrong", input_types=[TYPE]) as graph:
        x = graph.inputs[0].tensor
        with pytest.raises(ValueError, match="no kernel registered for 'nope'"):
            ops.custom("nope", CPU, [x], [x.type])
        with pytest.raises(TypeError, match=r"unsupported parameter type .* 'sizes'"):
            ops.custom("Own", CPU, [x], [x.type], {"sizes": [1]}, domain="com.microsoft")  # type: ignore[dict-item]
        with pytest.raises(NotImplementedError, match="with the changed buffer as an output"):
            ops.inplace_custom("Own", CPU, [x])
