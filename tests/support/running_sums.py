"""A model of running sums, whose state goes from one request to the next."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from onnx import helper

from tidemill.bundle import Bundle, GraphPart
from tidemill.dtype import DType
from tidemill.protocol import TensorSpec

__all__ = ["STATE", "SUM", "write_sums"]

SUM = {"input": "sum", "output": "next_sum"}
STATE: dict[str, Any] = {"state": [SUM]}


def write_sums(folder: Path, config: dict[str, Any], factor: float = 1.0, controls: tuple[str, ...] = ()) -> None:
    """y = next_sum = sum + factor * x, and what it was told by its control inputs as an output of the same name."""
    f32, i64 = DType.float32, DType.int64
    told = {name: DType.string if name == "id_in" else i64 for name in controls}
    inputs = [TensorSpec("x", f32, ("n", 1)), TensorSpec("sum", f32, ("n", 1))]
    inputs += [TensorSpec(name, dtype, ("n", 1)) for name, dtype in told.items()]
    outputs = [TensorSpec("y", f32, ("n", 1)), TensorSpec("next_sum", f32, ("n", 1))]
    outputs += [TensorSpec(f"{name}_told", dtype, ("n", 1)) for name, dtype in told.items()]
    nodes = [
        helper.make_node("Constant", [], ["factor"], value_float=float(factor)),
        helper.make_node("Mul", ["x", "factor"], ["scaled"]),
        helper.make_node("Add", ["scaled", "sum"], ["y"]),
        helper.make_node("Identity", ["y"], ["next_sum"]),
        *(helper.make_node("Identity", [name], [f"{name}_told"]) for name in told),
    ]
    infos = [
        [helper.make_tensor_value_info(spec.name, spec.dtype.onnx, list(spec.shape)) for spec in specs]
        for specs in (inputs, outputs)
    ]
    graph = helper.make_graph(nodes, "main", infos[0], infos[1])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    Bundle("sums", {"main": GraphPart(model, tuple(inputs), tuple(outputs))}).write(folder)
    (folder.parent / "model.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
