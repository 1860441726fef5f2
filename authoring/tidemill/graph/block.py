"""Branches and loop bodies while they are traced: their nodes go aside, in the middle of a graph."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tidemill.graph.extents import Extents
from tidemill.graph.ir import Body, Edge, Node

if TYPE_CHECKING:
    from tidemill.graph.value import TensorValue

__all__ = ["Enclosed", "set_aside"]


@contextmanager
def set_aside(body: Body, extents: Extents) -> Iterator[list[Node]]:
    """Let everything that is appended to `body` within the with block go into the list that is given."""
    nodes, spans = body.nodes, body.spans
    aside: list[Node] = []
    body.nodes, body.spans = aside, []
    try:
        with extents.scope():
            yield aside
    finally:
        body.nodes, body.spans = nodes, spans


class Enclosed:
    """The edges of blocks that are finished, which nothing outside can use."""

    def __init__(self) -> None:
        self._edges: set[Edge] = set()

    def add(self, inputs: Sequence[Edge], nodes: Sequence[Node]) -> None:
        """Close a block."""
        self._edges.update(inputs)
        for node in nodes:
            self._edges.update(node.gives())

    def check(self, values: Sequence[TensorValue | None]) -> None:
        """ValueError if a value was made within a block that is finished."""
        for value in values if self._edges else ():
            if value is not None and value.edge in self._edges:
                raise ValueError(
                    f"{value!r} was made inside a branch or a loop body and does not exist outside of it; "
                    "return it from there, and take it from the results of cond or while_loop"
                )
