"""Whether arguments and weights fit a subgraph that is called."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING

from tidemill.graph.dim import Dim, SymbolicDim
from tidemill.graph.ir import Edge
from tidemill.graph.value import TensorValue

if TYPE_CHECKING:
    from tidemill.graph.graph import Graph

__all__ = ["bind_arguments", "resolve_weights"]


def bind_arguments(name: str, inputs: Sequence[Edge], arguments: Sequence[TensorValue]) -> dict[str, Dim]:
    """The dims that the symbols of a subgraph's inputs take in one call.

    Raises:
        ValueError: The number, a dtype, a rank, a static dim or a repeated symbol differs.
    """
    if len(arguments) != len(inputs):
        types = ", ".join(edge.type.__repr__() for edge in inputs)
        raise ValueError(f"Expected {len(inputs)} args to call to {name}, got {len(arguments)}. \n    {name}({types})")
    sizes: dict[str, Dim] = {}
    for place, (edge, value) in enumerate(zip(inputs, arguments, strict=True)):
        fits = value.dtype is edge.type.dtype and value.rank == edge.type.rank
        if not fits or not _bind(edge, value, sizes):
            raise ValueError(
                f"Subgraph {name} has wrong type for argument {place} (function type: {edge.type}, "
                f"operand type: {value.type})"
            )
    return sizes


def resolve_weights(caller: Graph, callee: Graph, prefix: str) -> list[Edge]:
    """The caller's edges for the weights of a subgraph, in its order; placeholders get `prefix` before their name.

    Raises:
        ValueError: The module tree has no weight of that name, or one of another type.
    """
    edges = []
    for name, edge in callee.body.weights.items():
        if name not in callee.placeholders:
            # Its full name, which the caller may strip its own prefix from.
            local, placeholder = caller._local_name(name)
            edges.append(caller.weight_edge(local, edge.type, placeholder))
            continue
        full = prefix + name
        local, _ = caller._local_name(full)
        _check_known(caller, callee, full, edge)
        edges.append(caller.weight_edge(local, edge.type, placeholder=caller.is_subgraph))
    return edges


def _bind(edge: Edge, value: TensorValue, sizes: dict[str, Dim]) -> bool:
    for declared, given in zip(edge.type.shape, value.shape, strict=True):
        expected = sizes.setdefault(declared.name, given) if isinstance(declared, SymbolicDim) else declared
        if expected != given:
            return False
    return True


def _check_known(caller: Graph, callee: Graph, name: str, edge: Edge) -> None:
    known = caller.naming.weights
    if caller.is_subgraph or (not known and name not in callee.placeholders):
        return
    if name in callee.placeholders and name not in known:
        raise ValueError(
            f"call to {callee.name}: its placeholder weights ({', '.join(sorted(callee.placeholders))}) need a prefix, "
            "as in ops.call(subgraph, x, prefix='layers.0.')"
        )
    if name not in known:
        close = get_close_matches(name, known, n=1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        raise ValueError(
            f"call to {callee.name}: no module has a weight {name!r}{hint} The prefix and the weight's local name are "
            "put together as they are, so a prefix ends with a dot."
        )
    if known[name].type != edge.type:
        raise ValueError(
            f"call to {callee.name}: weight {name!r} is {known[name].type}, the subgraph takes {edge.type}"
        )
