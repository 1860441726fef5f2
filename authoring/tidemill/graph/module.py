"""Several graphs that are compiled together over one set of weights."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidemill.graph.graph import Graph

__all__ = ["Module"]


class Module:
    """Graphs by name; `Graph(module=...)` and `Module.trace(module=...)` add to it."""

    def __init__(self) -> None:
        self.graphs: dict[str, Graph] = {}

    def add(self, graph: Graph) -> None:
        """Add a graph.

        Raises:
            ValueError: A graph of this name is there.
        """
        if graph.name in self.graphs:
            raise ValueError(f"the module already has a graph {graph.name!r}; give each its own name=")
        self.graphs[graph.name] = graph

    def top_level_graph_names(self) -> list[str]:
        """The names of the graphs, in the order in which they were added; subgraphs are not among them."""
        return list(self.graphs)

    def __repr__(self) -> str:
        return f"Module({', '.join(self.graphs)})"
