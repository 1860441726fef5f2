"""What operators append to while a graph is traced: nodes, constants, sizes, and who asked for them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from tidemill.dtype import DType
from tidemill.graph.block import Enclosed, set_aside
from tidemill.graph.dim import Dim
from tidemill.graph.extents import Extents
from tidemill.graph.ir import Attribute, Block, Body, Edge, Node, Span
from tidemill.graph.naming import Naming
from tidemill.graph.source_line import user_line
from tidemill.graph.type import DeviceRef, TensorType
from tidemill.graph.value import TensorValue
from tidemill.graph.weight import Weight
from tidemill.protocol.types import Array

if TYPE_CHECKING:
    from tidemill.graph.graph import Graph

__all__ = ["Recorder"]


class Recorder(ABC):
    """The part of a graph that grows: the `context.Builder` of operators, weights and calls left open.

    Attributes:
        body: What was appended.
        naming: The names that a module tree gives to the weights and modules that are met.
        custom_extensions: The operator libraries that the graph will be loaded with.
        seed: What the next random operator is seeded with, None before `ops.random.set_seed`.
    """

    def __init__(self, inputs: Sequence[Edge], naming: Naming, custom_extensions: Sequence[object]) -> None:
        self.body = Body(inputs=list(inputs))
        self.naming = naming
        self.custom_extensions = tuple(custom_extensions)
        self.seed: int | None = None
        self._constants: dict[tuple[object, ...], Edge] = {}
        self._extents = Extents(self.body)
        self._enclosed = Enclosed()
        self._path = ""

    @abstractmethod
    def add_weight(self, weight: Weight) -> TensorValue:
        """The value of a weight, which appears in the graph at its first use."""

    @abstractmethod
    def named_weight(self, name: str, type: TensorType, placeholder: bool = False) -> TensorValue:
        """The value of a weight by its full name, which needs no owner."""

    @abstractmethod
    def call(self, graph: Graph, arguments: Sequence[Any], prefix: str) -> list[TensorValue]:
        """Append a call of a subgraph."""

    def append(
        self,
        op: str,
        inputs: Sequence[TensorValue | None],
        types: Sequence[TensorType],
        attributes: Mapping[str, Attribute],
        domain: str = "",
        blocks: Mapping[str, Block] | None = None,
    ) -> list[TensorValue]:
        """Append a node and return its outputs, one per type."""
        self._enclosed.check(inputs)
        edges = tuple(None if value is None else value.edge for value in inputs)
        outputs = tuple(Edge(type, op.lower()) for type in types)
        node = Node(op, edges, outputs, attributes, domain, path=self._path, source=user_line(), blocks=blocks or {})
        return self._append(node)

    def block(self, types: Sequence[TensorType], forward: Callable[..., Sequence[TensorValue]]) -> Block:
        """Trace a branch or a loop body, which is given values of `types` and sees every value of this graph."""
        inputs = [Edge(type, "carried") for type in types]
        with set_aside(self.body, self._extents) as nodes:
            results = forward(*(TensorValue(edge, self) for edge in inputs))
            self._enclosed.check(results)
            # A block may only return what its own nodes give.
            outputs = [self._append(Node("Identity", (one.edge,), (Edge(one.type, "output"),)))[0] for one in results]
        self._enclosed.add(inputs, nodes)
        return Block(tuple(inputs), nodes, tuple(value.edge for value in outputs))

    def constant(self, array: Array, device: DeviceRef | None = None) -> TensorValue:
        """A value known at trace time; equal ones are one."""
        type = TensorType(DType.from_numpy(array.dtype), array.shape, device)
        key = (type, array.tobytes())
        if key not in self._constants:
            edge = self._constants[key] = Edge(type, "constant")
            self.body.constants[edge] = array
        return TensorValue(self._constants[key], self)

    def extents(self, dims: Sequence[Dim]) -> TensorValue:
        """The sizes of dims at run time, int64 [len(dims)]."""
        if all(not dim.symbols for dim in dims):
            return self.constant(np.array([int(dim) for dim in dims], np.int64))
        return TensorValue(self._extents.vector(dims), self)

    def define(self, dim: Dim, value: TensorValue, axis: int) -> None:
        """Make a symbol known whose size only an intermediate value shows."""
        self._extents.define(dim, value.edge, axis)

    def knows(self, dim: Dim) -> bool:
        """Whether the symbols of a dim are known at run time."""
        return self._extents.knows(dim)

    def transposed_from(self, value: TensorValue) -> TensorValue | None:
        """The weight whose two axes `value` holds exchanged, None if it is no such thing."""
        node = value.edge.producer
        if node is None or node.op != "Transpose" or node.attributes["perm"] != (1, 0):
            return None
        source = node.inputs[0]
        return (
            TensorValue(source, self) if source is not None and self.body.weights.get(source.hint) is source else None
        )

    @contextmanager
    def profile_scope(self, name: str, color: str | None = None) -> Iterator[None]:
        """Put `name` before the names of the nodes that a with block appends, so that profiles show it."""
        del color  # profiles of ONNX Runtime have none
        outer, self._path = self._path, f"{self._path}.{name}".lstrip(".")
        try:
            yield
        finally:
            self._path = outer

    @contextmanager
    def span(self, module: object, arguments: Sequence[tuple[str, Any]]) -> Iterator[None]:
        """Note which nodes one call of a module appends."""
        named = {value._edge: name for name, value in arguments if isinstance(value, TensorValue) and _has_edge(value)}
        span = Span(self.naming.module_path(module), type(module).__name__, len(self.body.nodes), arguments=named)
        self.body.spans.append(span)
        outer, self._path = self._path, span.path
        try:
            yield
        finally:
            self._path = outer
            span.end = len(self.body.nodes)

    def _append(self, node: Node) -> list[TensorValue]:
        for edge in node.outputs:
            edge.producer = node
        self.body.nodes.append(node)
        return [TensorValue(edge, self) for edge in node.outputs]


def _has_edge(value: TensorValue) -> bool:
    return not isinstance(value, Weight)
