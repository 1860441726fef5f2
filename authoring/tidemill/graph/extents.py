"""The sizes of symbolic dims at run time: where each can be read off, and the arithmetic over them.

What only depends on the inputs goes into the prologue of the body, once; so equal modules keep equal bodies.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np

from tidemill.dtype import DType
from tidemill.graph.dim import Dim, FloorDiv, StaticDim, SymbolicDim
from tidemill.graph.ir import Attribute, Body, Edge, Node
from tidemill.graph.type import TensorType

if TYPE_CHECKING:
    from tidemill.graph.dim import Atom

__all__ = ["Extents"]


class Extents:
    """Knows which edge and axis shows the size of each symbol of one body."""

    def __init__(self, body: Body) -> None:
        self._body = body
        self._sources: dict[str, tuple[Edge, int]] = {}
        self._late: set[str] = set()
        self._hoisted: dict[tuple[Dim, ...], Edge] = {}
        self._prologue = _Arithmetic(body, body.prologue, self._sources)
        for edge in body.inputs:
            for axis, dim in enumerate(edge.type.shape):
                self._define(dim, edge, axis)

    def define(self, dim: Dim, edge: Edge, axis: int) -> None:
        """Make a symbol known that only an intermediate value shows; known ones stay as they are."""
        if isinstance(dim, SymbolicDim) and dim.name not in self._sources:
            self._late.add(dim.name)
        self._define(dim, edge, axis)

    def knows(self, dim: Dim) -> bool:
        """Whether every symbol of `dim` has a size at run time."""
        return all(name in self._sources for name in dim.symbols)

    def vector(self, dims: Sequence[Dim]) -> Edge:
        """The sizes of `dims` as an int64 vector, appended to the prologue where possible.

        Raises:
            ValueError: A symbol is neither on an input nor on an intermediate value.
        """
        symbols = frozenset().union(*(dim.symbols for dim in dims)) if dims else frozenset()
        unknown = sorted(symbols - self._sources.keys())
        if unknown:
            raise ValueError(f"dim {unknown[0]!r} is on no input, so its size is not known when the model runs")
        if symbols & self._late:
            return _Arithmetic(self._body, self._body.nodes, self._sources).vector(dims)
        key = tuple(dims)
        if key not in self._hoisted:
            self._hoisted[key] = self._prologue.vector(dims)
        return self._hoisted[key]

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Forget at the end what was defined within: a block's values are gone after it."""
        sources, late = dict(self._sources), set(self._late)
        try:
            yield
        finally:
            self._sources, self._late = sources, late

    def _define(self, dim: Dim, edge: Edge, axis: int) -> None:
        if isinstance(dim, SymbolicDim):
            self._sources.setdefault(dim.name, (edge, axis))


class _Arithmetic:
    """Appends int64 vectors to one list of nodes."""

    def __init__(self, body: Body, nodes: list[Node], sources: dict[str, tuple[Edge, int]]) -> None:
        self._body, self._nodes, self._sources = body, nodes, sources
        self._known: dict[Dim | Atom, Edge] = {}

    def vector(self, dims: Sequence[Dim]) -> Edge:
        pieces = [
            self._constant([int(dim) for dim in run]) if static else self._concat([self._size(dim) for dim in run])
            for static, run in groupby(dims, key=lambda dim: isinstance(dim, StaticDim))
        ]
        return self._concat(pieces) if pieces else self._constant([])

    def _size(self, dim: Dim) -> Edge:
        if dim not in self._known:
            self._known[dim] = self._sum(dim)
        return self._known[dim]

    def _sum(self, dim: Dim) -> Edge:
        terms = [self._term(atoms, factor) for atoms, factor in dim.terms()]
        total = terms[0]
        for term in terms[1:]:
            total = self._node("Add", (total, term), 1)
        return total

    def _term(self, atoms: Sequence[Atom], factor: int) -> Edge:
        factors = [self._atom(atom) for atom in atoms]
        if factor != 1 or not factors:
            factors.append(self._constant([factor]))
        product = factors[0]
        for other in factors[1:]:
            product = self._node("Mul", (product, other), 1)
        return product

    def _atom(self, atom: Atom) -> Edge:
        if atom not in self._known:
            self._known[atom] = self._read(atom)
        return self._known[atom]

    def _read(self, atom: Atom) -> Edge:
        if isinstance(atom, FloorDiv):
            return self._quotient(atom)
        edge, axis = self._sources[atom]
        return self._node("Shape", (edge,), 1, start=axis, end=axis + 1)

    def _quotient(self, atom: FloorDiv) -> Edge:
        top, bottom = self._size(atom.numerator), self._size(atom.denominator)
        if any(factor < 0 for dim in (atom.numerator, atom.denominator) for _, factor in dim.terms()):
            # ONNX's Div truncates and its Mod floors: what is left over makes the division come out even.
            top = self._node("Sub", (top, self._node("Mod", (top, bottom), 1)), 1)
        return self._node("Div", (top, bottom), 1)

    def _concat(self, pieces: list[Edge]) -> Edge:
        if len(pieces) == 1:
            return pieces[0]
        size = sum(int(piece.type.shape[0]) for piece in pieces)
        return self._node("Concat", tuple(pieces), size, axis=0)

    def _node(self, op: str, inputs: tuple[Edge, ...], size: int, **attributes: Attribute) -> Edge:
        edge = Edge(TensorType(DType.int64, [size]), hint="dims")
        node = Node(op, inputs, (edge,), attributes)
        edge.producer = node
        self._nodes.append(node)
        return edge

    def _constant(self, sizes: list[int]) -> Edge:
        edge = Edge(TensorType(DType.int64, [len(sizes)]), hint="dims")
        self._body.constants[edge] = np.array(sizes, np.int64)
        return edge
