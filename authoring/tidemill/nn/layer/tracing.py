"""From a module to a graph, a subgraph or a bundle."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from tidemill import tree
from tidemill.graph.dim import AlgebraicDim, Dim
from tidemill.graph.graph import Graph
from tidemill.graph.module import Module as GraphModule
from tidemill.graph.naming import Naming
from tidemill.graph.type import TensorType, Type
from tidemill.graph.value import Value
from tidemill.nn.layer.layer import Layer, parameter_names
from tidemill.nn.layer.tree_walk import owned_weights, walk_modules

if TYPE_CHECKING:
    from tidemill.nn.layer.module import Module

__all__ = ["Session", "TraceOptions", "build_subgraph", "holds_modules", "trace"]

_Loaded_co = TypeVar("_Loaded_co", covariant=True)


class Session(Protocol[_Loaded_co]):
    """What `Module.compile` needs of a session."""

    def load(self, graph: Graph, *, weights_registry: Mapping[str, Any]) -> _Loaded_co:
        """Compile a graph over the values of its weights."""


@dataclasses.dataclass(frozen=True)
class TraceOptions:
    """How a module is traced; see `Module.trace`."""

    name: str
    module: GraphModule | None = None
    custom_extensions: Sequence[Any] = ()
    input_names: Sequence[str] | None = None
    output_names: Sequence[str] | None = None


def trace(module: Module, input_types: Sequence[Type], options: TraceOptions) -> Graph:
    """Run a module's `__call__` with symbolic values; see `Module.trace`."""
    graph = Graph(
        options.name,
        input_types=input_types,
        custom_extensions=options.custom_extensions,
        input_names=parameter_names(module.__call__, len(input_types))
        if options.input_names is None
        else options.input_names,
        naming=_naming(module),
    )
    with graph:
        values, derived = _named_outputs(module(*graph.inputs))
        graph.output(*values, names=derived if options.output_names is None else options.output_names)
    if options.module is not None:
        options.module.add(graph)
    return graph


def build_subgraph(module: Module, name: str, inputs: Sequence[Any], weight_prefix: str) -> Graph:
    """Trace a module into a subgraph of the current graph; see `Module.build_subgraph`."""
    parent = Graph.current
    if isinstance(inputs, Value) or not isinstance(inputs, Sequence):
        raise TypeError(
            f"build_subgraph({name!r}): inputs must be a list with one entry per argument of "
            f"{type(module).__name__}.__call__, not {inputs!r}"
        )
    leaves, structure = tree.flatten(list(inputs))
    places = [place for place, leaf in enumerate(leaves) if isinstance(leaf, Value)]

    def forward(*values: Any) -> Sequence[Any]:
        filled = list(leaves)
        for place, value in zip(places, values, strict=True):
            filled[place] = value
        return _subgraph_outputs(module(*tree.unflatten(structure, filled)))

    types = _named_dims([leaves[place].tensor.type for place in places])
    sub = parent.add_subgraph(name, forward, types, weight_prefix=weight_prefix)
    if weight_prefix and sub.body.weights and not sub.placeholders:
        raise ValueError(
            f"build_subgraph({name!r}): no weight begins with {weight_prefix!r}; the weights are "
            f"{', '.join(sub.body.weights)}. Trace the root module, or call its state_dict() first, so that they have "
            "their full names."
        )
    return sub


def _named_dims(types: Sequence[TensorType]) -> list[TensorType]:
    """The types with a name for each dim that is arithmetic: inputs have sizes and names."""
    names: dict[Dim, Dim] = {}
    for type in types:
        for dim in type.shape:
            if isinstance(dim, AlgebraicDim):
                names.setdefault(dim, Dim(f"dim_{len(names)}"))
    return [type.with_shape(names.get(dim, dim) for dim in type.shape) for type in types]


def holds_modules(value: object) -> bool:
    """Whether `value` is a plain container with modules in it, which no module finds."""
    items: Iterable[object] = value.values() if isinstance(value, dict) else ()
    if isinstance(value, (list, tuple)):
        items = value
    return any(isinstance(item, Layer) for item in items)


def _naming(module: Module) -> Naming:
    modules = {id(child): prefix.rstrip(".") for prefix, child in walk_modules(module)}
    return Naming(owned_weights(module), modules)


def _named_outputs(result: Any) -> tuple[Sequence[Any], Sequence[str] | None]:
    """What `__call__` returned as values, and the names it gives them."""
    if isinstance(result, Mapping):
        return list(result.values()), [str(key) for key in result]
    if dataclasses.is_dataclass(result) and not isinstance(result, type):
        names = [item.name for item in dataclasses.fields(result)]
        return [getattr(result, name) for name in names], names
    if isinstance(result, tuple) and hasattr(result, "_fields"):
        return list(result), list(result._fields)
    return _values(result), None


def _values(result: Any) -> Sequence[Any]:
    if result is None:
        return []
    return list(result) if isinstance(result, Iterable) and not isinstance(result, Value) else [result]


def _subgraph_outputs(result: Any) -> Sequence[Any]:
    if isinstance(result, Value):
        return [result]
    if isinstance(result, (list, tuple)):
        return list(result)
    raise TypeError(
        "TensorValue() argument must be a graph.TensorValue, or a graph.Weight, not "
        f"{type(result).__name__!r}: a subgraph returns a value or a list of values"
    )
