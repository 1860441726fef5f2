"""Calls of subgraphs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidemill.graph.context import current

if TYPE_CHECKING:
    from tidemill.graph.graph import Graph
    from tidemill.graph.value import TensorValue

__all__ = ["call"]


def call(graph: Graph, *args: Any, prefix: str = "") -> list[TensorValue]:
    """Call a subgraph in the graph being traced.

    Args:
        graph: What `Module.build_subgraph` or `Graph.add_subgraph` returned.
        *args: The leaves of its inputs, in order.
        prefix: Put before the name of each of its placeholder weights, as it is: "layers.0." and "weight" name the
            weight "layers.0.weight".

    Returns:
        The outputs, one list entry each.

    Raises:
        ValueError: The number, dtype or shape of the arguments differs, or a weight cannot be resolved.
    """
    return current().call(graph, args, prefix)
