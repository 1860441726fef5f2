"""From a traced graph to an ONNX model; the only writer of nodes, functions and initializers.

Versions are fixed, not onnx's newest: IR 10 and opset 21 are what every supported ONNX Runtime reads. A model has a
later opset only if an operator in it needs that.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import onnx
from onnx import helper, numpy_helper

from tidemill.dtype import DType
from tidemill.graph.dim import StaticDim, SymbolicDim
from tidemill.graph.ir import Block, Body, Edge, Function, Node, walk
from tidemill.graph.naming import Namer
from tidemill.graph.plan import make_plan
from tidemill.graph.type import TensorType
from tidemill.protocol.types import Array

if TYPE_CHECKING:
    from tidemill.graph.graph import Graph

__all__ = ["FUNCTION_DOMAIN", "IR_VERSION", "OPSET", "to_model"]

IR_VERSION = 10
OPSET = 21
FUNCTION_DOMAIN = "tidemill.functions"

# The operators that OPSET lacks, and the opset that they came with.
_NEWER = {"Attention": 23, "RMSNormalization": 23, "RotaryEmbedding": 23}

# The operators that ONNX Runtime has no kernel for in the opset of those.
_OLDER = frozenset({"RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "RoiAlign"})


def to_model(graph: Graph, *, weights: str = "external", dedup: str = "auto") -> onnx.ModelProto:
    """Write a graph as an ONNX model.

    Args:
        graph: A finished graph.
        weights: "external" for initializers that carry name, type and shape but no data, for a bundle to point into
            its weights file; "inputs" for weights as the last graph inputs, so that values are fed with each run.
        dedup: "auto" to share a function between modules whose traced bodies are equal, "off" to write every module
            out. Subgraphs are functions either way.

    Raises:
        ValueError: An option is unknown, or an external weight has a symbolic dim.
    """
    if weights not in ("external", "inputs") or dedup not in ("auto", "off"):
        raise ValueError(
            f"to_model(weights={weights!r}, dedup={dedup!r}): weights is 'external' or 'inputs', dedup 'auto' or 'off'"
        )
    plan = make_plan(graph.body, dedup)
    body, functions = plan.body, plan.functions
    opsets = _opsets(functions, [plan.nodes, *(function.nodes for function in functions)])
    outputs = {edge: spec.name for edge, spec in zip(body.outputs, graph.output_specs, strict=True)}
    weight_names = {body.weights[name]: spec.name for name, spec in graph.weight_specs.items() if name in body.weights}
    names = {edge: edge.hint for edge in body.inputs} | weight_names | outputs
    scope = _Scope(names, functions)
    proto = helper.make_graph(
        nodes=[scope.node(node) for node in plan.nodes],
        name=graph.name,
        inputs=[_value_info(names[edge], edge.type) for edge in _declared(body, weights)],
        outputs=[_value_info(name, edge.type) for edge, name in outputs.items()],
        initializer=[
            *scope.constants(plan.nodes, body.constants),
            *(_external_tensor(name, edge.type) for edge, name in weight_names.items() if weights == "external"),
        ],
    )
    return helper.make_model(
        proto,
        functions=[_function_proto(callee, functions, opsets) for callee in functions],
        opset_imports=opsets,
        ir_version=IR_VERSION,
        producer_name="tidemill",
    )


class _Scope:
    """The names of one graph or function while it is written."""

    def __init__(self, names: Mapping[Edge, str], functions: Mapping[Function, str], path: str = "") -> None:
        self._names = dict(names)
        self._functions = functions
        self._path = path
        self._values = Namer(self._names.values())
        self._nodes = Namer()

    def node(self, node: Node) -> onnx.NodeProto:
        proto = helper.make_node(
            node.op if node.callee is None else self._functions[node.callee],
            ["" if edge is None else self.value(edge) for edge in node.inputs],
            [self.value(edge) for edge in node.outputs],
            name=self._nodes.name(self._node_hint(node)),
            domain=node.domain if node.callee is None else FUNCTION_DOMAIN,
        )
        proto.attribute.extend(helper.make_attribute(key, value) for key, value in node.attributes.items())
        blocks = ((key, self._block(block, f"{proto.name}.{key}")) for key, block in node.blocks.items())
        proto.attribute.extend(helper.make_attribute(key, block) for key, block in blocks)
        if node.source:
            proto.metadata_props.add(key="source", value=node.source)
        return proto

    def value(self, edge: Edge) -> str:
        if edge not in self._names:
            self._names[edge] = self._values.name(edge.hint)
        return self._names[edge]

    def constants(self, nodes: Sequence[Node], values: Mapping[Edge, Array]) -> list[onnx.TensorProto]:
        used = dict.fromkeys(edge for node in nodes for edge in node.reads() if edge in values)
        return [_tensor(values[edge], self.value(edge), edge.type.dtype) for edge in used]

    def _block(self, block: Block, name: str) -> onnx.GraphProto:
        nodes = [self.node(node) for node in block.nodes]
        inputs, outputs = (
            [_sizeless_info(self.value(edge), edge.type) for edge in edges] for edges in (block.inputs, block.outputs)
        )
        return helper.make_graph(nodes, name, inputs, outputs)

    def _node_hint(self, node: Node) -> str:
        path = node.path.removeprefix(f"{self._path}.") if self._path else node.path
        if node.callee is not None:
            return path or self._functions[node.callee]
        return f"{path}.{node.op}" if path and path != self._path else node.op


def _function_proto(
    function: Function, functions: Mapping[Function, str], opsets: Sequence[onnx.OperatorSetIdProto]
) -> onnx.FunctionProto:
    inputs = Namer()
    scope = _Scope({edge: inputs.name(function.names[edge]) for edge in function.inputs}, functions, function.path)
    constants = scope.constants(function.nodes, _without(function.constants, function.inputs))
    nodes = [helper.make_node("Constant", [], [tensor.name], name=tensor.name, value=tensor) for tensor in constants]
    nodes += [scope.node(node) for node in function.nodes]
    return helper.make_function(
        FUNCTION_DOMAIN,
        functions[function],
        [scope.value(edge) for edge in function.inputs],
        [scope.value(edge) for edge in function.outputs],
        nodes,
        opsets,
    )


def _without(values: Mapping[Edge, Array], edges: Iterable[Edge]) -> dict[Edge, Array]:
    given = set(edges)
    return {edge: value for edge, value in values.items() if edge not in given}


def _declared(body: Body, weights: str) -> Iterator[Edge]:
    yield from body.inputs
    if weights == "inputs":
        yield from body.weights.values()


def _external_tensor(name: str, type: TensorType) -> onnx.TensorProto:
    for axis, dim in enumerate(type.shape):
        if not isinstance(dim, StaticDim):
            raise ValueError(f"weight {name!r} has the symbolic dim {dim} on axis {axis}; a bundle needs its size")
    proto = onnx.TensorProto(name=name, data_type=type.dtype.onnx, dims=type.shape.static_dims)
    proto.data_location = onnx.TensorProto.EXTERNAL
    return proto


def _tensor(value: Array, name: str, dtype: DType) -> onnx.TensorProto:
    if dtype is DType.string:
        return onnx.TensorProto(
            name=name, data_type=dtype.onnx, dims=value.shape, string_data=[_utf8(item) for item in value.ravel()]
        )
    return numpy_helper.from_array(value, name)


def _utf8(item: str | bytes) -> bytes:
    return item.encode() if isinstance(item, str) else item


def _value_info(name: str, type: TensorType) -> onnx.ValueInfoProto:
    dims = [int(dim) if isinstance(dim, StaticDim) else _param(dim) for dim in type.shape]
    return helper.make_tensor_value_info(name, type.dtype.onnx, dims)


def _sizeless_info(name: str, type: TensorType) -> onnx.ValueInfoProto:
    """Without sizes, because a function's blocks serve calls of several."""
    return helper.make_tensor_value_info(name, type.dtype.onnx, [None] * type.rank)


def _param(dim: object) -> str | None:
    return dim.name if isinstance(dim, SymbolicDim) else None


def _opsets(functions: Mapping[Function, str], bodies: Iterable[Sequence[Node]]) -> list[onnx.OperatorSetIdProto]:
    used = {(node.domain, node.op) for nodes in bodies for node in walk(nodes) if node.callee is None}
    newer, older = ([op for op in ops if ("", op) in used] for ops in (_NEWER, sorted(_OLDER)))
    if newer and older:
        raise ValueError(
            f"{newer[0]} and {older[0]} can not be in one model: ONNX Runtime knows the first from opset "
            f"{_NEWER[newer[0]]} on, and has a kernel for the second only up to {OPSET}. Make two graphs of it"
        )
    opset = max([OPSET, *(_NEWER[op] for op in newer)])
    domains = sorted({domain for domain, _ in used if domain} | ({FUNCTION_DOMAIN} if functions else set()))
    return [helper.make_opsetid("", opset), *(helper.make_opsetid(domain, 1) for domain in domains)]
