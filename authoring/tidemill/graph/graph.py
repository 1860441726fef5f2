"""A graph: what tracing appends to, and what compiling and bundling read."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

from tidemill.graph.buffer_value import BufferValue
from tidemill.graph.calls import bind_arguments, resolve_weights
from tidemill.graph.context import activate, as_tensor, current
from tidemill.graph.dim import Dim
from tidemill.graph.ir import Edge, Function, Node
from tidemill.graph.liveness import live
from tidemill.graph.module import Module
from tidemill.graph.naming import Namer, Naming
from tidemill.graph.plan import SharedFunction, make_plan, shared_functions
from tidemill.graph.recorder import Recorder
from tidemill.graph.signature import as_sequence, input_edges, output_names
from tidemill.graph.source_line import user_line
from tidemill.graph.type import BufferType, TensorType, Type
from tidemill.graph.value import TensorValue, Value
from tidemill.graph.weight import Weight
from tidemill.protocol.types import TensorSpec

__all__ = ["Graph"]


class _Current:
    """`Graph.current`, readable on the class."""

    def __get__(self, instance: object, owner: type) -> Graph:
        graph = current()
        assert isinstance(graph, Graph)
        return graph


class Graph(Recorder):
    """A traced computation; a context manager within which operators append to it.

    Args:
        name: Its name.
        forward: If given, it is traced at once: it gets the inputs and returns the outputs.
        input_types: The type of each input.
        path: Not used: graphs are not read from files.
        custom_extensions: Paths of operator libraries; kept for the session that loads the graph.
        kernel_library: Has no meaning here and must be None.
        module: The module of graphs to add this one to, so that they are compiled over one set of weights.
        is_device_graph: Has no meaning here and must be False.
        input_names: What the inputs are called; `input0`, `input1`, ... by default.
        naming: The names that a module tree gives to the weights and modules that are met.

    Raises:
        TypeError: An input type is no TensorType.
        ValueError: An input has a dim that is arithmetic, or two inputs have one name.
        NotImplementedError: `kernel_library` or `is_device_graph` is set.
    """

    current = _Current()

    def __init__(
        self,
        name: str,
        forward: Callable[..., Any] | None = None,
        input_types: Sequence[Type] = (),
        path: object = None,
        *,
        custom_extensions: Sequence[object] = (),
        kernel_library: object = None,
        module: Module | None = None,
        is_device_graph: bool = False,
        input_names: Sequence[str] | None = None,
        naming: Naming | None = None,
    ) -> None:
        if path is not None:
            raise ValueError(f"Graph(path={path!r}): graphs are traced, not read from files; pass forward= instead")
        if kernel_library is not None or is_device_graph:
            raise NotImplementedError(
                "Graph(kernel_library=, is_device_graph=): kernels come from ONNX Runtime and its operator libraries "
                "(custom_extensions), and the execution provider decides what runs on the device"
            )
        super().__init__(input_edges(input_types, input_names), naming or Naming(), custom_extensions)
        self.name = name
        self.updates: dict[str, str] = {}
        self.subgraphs: dict[str, Graph] = {}
        self.placeholders: set[str] = set()
        self._prefix: str | None = None
        self._owners: dict[str, Weight] = {}
        self._open: list[AbstractContextManager[None]] = []
        self._output_names: tuple[str, ...] = ()
        self._function: Function | None = None
        self._inputs = tuple(self._input(edge, type) for edge, type in zip(self.body.inputs, input_types, strict=True))
        if module is not None:
            module.add(self)
        if forward is not None:
            with self:
                self.output(*as_sequence(forward(*self.inputs)))

    def __enter__(self) -> Graph:
        opened = activate(self)
        opened.__enter__()
        self._open.append(opened)
        return self

    def __exit__(self, *exception: object) -> None:
        self._open.pop().__exit__(None, None, None)

    @property
    def inputs(self) -> tuple[Value, ...]:
        """The inputs, in order."""
        return self._inputs

    @property
    def output_types(self) -> list[TensorType]:
        """The types of the outputs, in order."""
        return [edge.type for edge in self.body.outputs[: len(self.body.outputs) - len(self.updates)]]

    @property
    def kernel_libraries_paths(self) -> list[object]:
        """The operator libraries that the graph was given."""
        return list(self.custom_extensions)

    @property
    def is_subgraph(self) -> bool:
        """Whether the graph is there to be called from others."""
        return self._prefix is not None

    def output(self, *values: Any, names: Sequence[str] | None = None) -> None:
        """Set what the graph returns.

        Args:
            *values: Graph values or weights. Buffers that were written to are returned besides, each as
                `<input>.out`.
            names: What they are called: `output`, or `output_0`, `output_1`, ... by default.

        Raises:
            TypeError: One of them is no graph value.
            ValueError: The number of names differs, or a name is empty, used twice or an input's.
        """
        self._function = None
        taken = [edge.hint for edge in self.body.inputs]
        given = output_names(len(values), names, taken)
        changed = {
            f"{edge.hint}.out": (edge.hint, value.content)
            for edge, value in zip(self.body.inputs, self._inputs, strict=True)
            if isinstance(value, BufferValue) and value.is_changed
        }
        self.updates = {output: source for output, (source, _) in changed.items()}
        self._output_names = (*given, *changed)
        results = [as_tensor(value) for value in (*values, *(content for _, content in changed.values()))]
        self._enclosed.check(results)
        edges = [value.edge for value in results]
        self.body.outputs = [self._own_output(edge, edges[:place]) for place, edge in enumerate(edges)]

    def add_weight(self, weight: Weight) -> TensorValue:
        """The value of a weight, which appears in the graph at its first use.

        Raises:
            ValueError: Another weight of the same name is in the graph.
        """
        name = self.naming.weight_name(weight)
        local, placeholder = self._local_name(name)
        if self._owners.setdefault(local, weight) is not weight:
            raise ValueError(f"Weight {local!r} already exists in Graph {self.name!r}")
        return TensorValue(self.weight_edge(local, weight.type, placeholder), self)

    def add_subgraph(
        self,
        name: str,
        forward: Callable[..., Any] | None = None,
        input_types: Sequence[Type] = (),
        *,
        weight_prefix: str = "",
    ) -> Graph:
        """A graph that this one, or another subgraph of it, can call.

        Args:
            name: Its name, unique among the subgraphs.
            forward: If given, it is traced at once.
            input_types: The type of each input; symbols in it take the size of what a call passes.
            weight_prefix: Stripped from the names of weights, which makes them placeholders: every call names them
                again by its own prefix.
        """
        if name in self.subgraphs:
            raise ValueError(f"graph {self.name!r} already has a subgraph {name!r}; give each its own name")
        sub = Graph(name, input_types=input_types, naming=self.naming)
        sub._prefix = weight_prefix
        sub.subgraphs, sub.custom_extensions = self.subgraphs, self.custom_extensions
        if forward is not None:
            with sub:
                sub.output(*as_sequence(forward(*sub.inputs)))
        self.subgraphs[name] = sub
        return sub

    def call(self, graph: Graph, arguments: Sequence[Any], prefix: str) -> list[TensorValue]:
        """Append a call of a subgraph; see `ops.call`."""
        if not isinstance(graph, Graph) or not graph.is_subgraph:
            raise ValueError(f"Only subgraphs can be called, {graph!r} is none: make it with add_subgraph")
        if not graph.body.outputs:
            raise ValueError(f"subgraph {graph.name!r} has no outputs yet: call its output(...) before it is called")
        values = [as_tensor(argument) for argument in arguments]
        self._enclosed.check(values)
        sizes = bind_arguments(graph.name, graph.body.inputs, values)
        private = self._private_symbols(graph, sizes)
        sizes |= private
        weights = resolve_weights(self, graph, prefix)
        edges = tuple(value.edge for value in values) + tuple(weights)
        outputs = tuple(Edge(edge.type.substitute(sizes), graph.name) for edge in graph.body.outputs)
        path = prefix.rstrip(".") or self._path
        node = Node(graph.name, edges, outputs, callee=graph.function(), path=path, source=user_line())
        results = self._append(node)
        for value in results:
            for axis, dim in enumerate(value.shape):
                if dim in private.values():
                    self.define(dim, value, axis)
        return results

    def named_weight(self, name: str, type: TensorType, placeholder: bool = False) -> TensorValue:
        """The value of the weight `name`, which needs no owner; ValueError if it is there with another type."""
        return TensorValue(self.weight_edge(name, type, placeholder), self)

    def weight_edge(self, name: str, type: TensorType, placeholder: bool = False) -> Edge:
        """The edge of the weight `name`, made at first use; ValueError if it is there with another type."""
        edge = self.body.weights.setdefault(name, Edge(type, name))
        if edge.type != type:
            raise ValueError(f"Weight {name!r} is {edge.type} in Graph {self.name!r}, it can not be {type} as well")
        if placeholder:
            self.placeholders.add(name)
        return edge

    def copy(self) -> Graph:
        """The same graph, to be changed on its own; weights stay those of their modules."""
        kept: dict[int, Any] = {
            id(weight): weight for weight in (*self._owners.values(), *self.naming.weights.values())
        }
        return copy.deepcopy(self, kept)

    # What the engine and bundles use.

    def function(self) -> Function:
        """This subgraph as a function: its inputs, then its weights."""
        if self._function is None:
            # A call passes every weight, so those that turned out not to matter stay in the signature.
            body, weights = live(self.body), self.body.weights
            names = {edge: edge.hint for edge in body.inputs} | {edge: name for name, edge in weights.items()}
            self._function = Function(
                name=self.name,
                inputs=(*body.inputs, *weights.values()),
                nodes=[*body.prologue, *body.nodes],
                outputs=tuple(body.outputs),
                constants=body.constants,
                names=names,
                path=(self._prefix or "").rstrip("."),
            )
        return self._function

    @property
    def input_specs(self) -> tuple[TensorSpec, ...]:
        """The signature of the inputs."""
        return tuple(edge.type.spec(edge.hint) for edge in self.body.inputs)

    @property
    def output_specs(self) -> tuple[TensorSpec, ...]:
        """The signature of the outputs."""
        return tuple(edge.type.spec(name) for name, edge in zip(self._output_names, self.body.outputs, strict=True))

    @property
    def weight_specs(self) -> dict[str, TensorSpec]:
        """The weights that the graph uses, by full name.

        The name in a spec is that in the ONNX model; it differs where an input or output has the weight's full name.
        """
        namer = Namer([*(edge.hint for edge in self.body.inputs), *self._output_names])
        weights = live(self.body).weights
        return {name: edge.type.spec(namer.name(name)) for name, edge in weights.items()}

    @property
    def functions(self) -> dict[str, SharedFunction]:
        """The functions that the exported graph will have, by name: how often each is called and what that saves."""
        return shared_functions(make_plan(self.body, dedup="auto"))

    @property
    def function_calls(self) -> dict[str, str]:
        """The path of every module that is a call of a function in the exported graph, with the function's name.

        Calls within a function stand under the path of the module that it was made of.
        """
        plan = make_plan(self.body, dedup="auto")
        bodies = [plan.nodes, *(function.nodes for function in plan.functions)]
        return {node.path: plan.functions[node.callee] for body in bodies for node in body if node.callee is not None}

    def to_model_bytes(self) -> bytes:
        """The serialised ONNX model in which the weights are the last inputs."""
        from tidemill.graph.export import to_model  # onnx is slow to import and not needed for tracing

        return bytes(to_model(self, weights="inputs").SerializeToString())

    def __repr__(self) -> str:
        inputs = ", ".join(map(str, self.input_specs))
        return f"Graph({self.name!r}, [{inputs}] -> [{', '.join(map(str, self.output_specs))}])"

    def _private_symbols(self, callee: Graph, sizes: Mapping[str, Dim]) -> dict[str, Dim]:
        """Symbols of a subgraph's outputs that only its own run shows, with names that are free here."""
        symbols = {name for edge in callee.body.outputs for dim in edge.type.shape for name in dim.symbols}
        private: dict[str, Dim] = {}
        for name in sorted(symbols - sizes.keys()):
            candidates = (Dim(name if not count else f"{name}_{count}") for count in itertools.count())
            private[name] = next(dim for dim in candidates if not self.knows(dim))
        return private

    def _input(self, edge: Edge, type: Type) -> Value:
        value = TensorValue(edge, self)
        return BufferValue(type, value) if isinstance(type, BufferType) else value

    def _own_output(self, edge: Edge, earlier: Sequence[Edge]) -> Edge:
        """An edge that only this output has; a copy where `edge` is an input, a weight or returned twice."""
        if edge.producer is not None and all(edge is not other for other in earlier):
            return edge
        return self._append(Node("Identity", (edge,), (Edge(edge.type, "output"),)))[0].edge

    def _local_name(self, name: str) -> tuple[str, bool]:
        if self._prefix and name.startswith(self._prefix):
            return name[len(self._prefix) :], True
        return name, False
