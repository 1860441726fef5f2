"""Shared functions: finds modules whose traced bodies are equal and replaces them by calls of one function.

Bodies are compared, never classes: the same operators with the same attributes and small constants on inputs of the
same dtype and rank, in the same order. Weights and everything else that flows in become the function's inputs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from tidemill.graph.ir import Body, Edge, Function, Node, Span
from tidemill.protocol.types import Array

__all__ = ["share_functions"]

_MIN_NODES = 4
"""Smaller bodies stay where they are: a call of two nodes is harder to read than the nodes."""

_MAX_CONSTANT_BYTES = 1024
"""Larger constants are passed in: a constant inside a function is repeated by every call once it is inlined."""

_Key: TypeAlias = tuple[object, ...]


@dataclass(eq=False, slots=True)
class _Block:
    """A span as a candidate, with what it takes from outside and what it gives."""

    span: Span
    inputs: list[Edge] = field(default_factory=list)
    outputs: list[Edge] = field(default_factory=list)
    children: list[_Block] = field(default_factory=list)
    function: Function | None = None
    alive: bool = True

    @property
    def size(self) -> int:
        return self.span.end - self.span.start


def share_functions(body: Body) -> list[Node]:
    """The nodes of `body` in which repeated modules are calls of shared functions.

    Args:
        body: Its spans must be in the order in which the calls began.

    Returns:
        The new list; `body` stays as it is.
    """
    sharing = _Sharing(body)
    sharing.claim()
    return sharing.rewritten(0, len(body.nodes), sharing.roots)


class _Sharing:
    """One pass over one body."""

    def __init__(self, body: Body) -> None:
        self._body = body
        self._weights = {edge: name for name, edge in body.weights.items()}
        self._last_use = _last_uses(body)
        self._blocks = [_Block(span) for span in body.spans if span.end - span.start >= _MIN_NODES]
        self.roots = _tree(self._blocks)

    def claim(self) -> None:
        """Give a function to every group of equal blocks, the largest bodies first."""
        shared: list[_Block] = []
        for alike in self._alike():
            for members in self._equal(_apart([block for block in alike if block.alive])):
                self._share(members)
                shared.append(members[0])
        for block in shared:
            assert block.function is not None
            block.function.nodes = self.rewritten(block.span.start, block.span.end, block.children)

    def _alike(self) -> list[list[_Block]]:
        """Blocks that do the same in the same order, whatever they do it to; the largest first."""
        numbers: dict[_Key, int] = {}
        kinds = [numbers.setdefault(_kind(node), len(numbers)) for node in self._body.nodes]
        groups: dict[tuple[int, ...], list[_Block]] = {}
        for block in self._blocks:
            groups.setdefault(tuple(kinds[block.span.start : block.span.end]), []).append(block)
        return sorted(groups.values(), key=lambda blocks: -blocks[0].size)

    def _equal(self, blocks: Sequence[_Block]) -> list[list[_Block]]:
        """The groups of two and more whose bodies are equal to the last input."""
        groups: dict[_Key, list[_Block]] = {}
        for block in blocks if len(blocks) > 1 else ():
            groups.setdefault(self._describe(block), []).append(block)
        return [group for group in groups.values() if len(group) > 1]

    def rewritten(self, start: int, end: int, blocks: Sequence[_Block]) -> list[Node]:
        """The nodes from `start` to `end` with claimed blocks replaced by calls."""
        nodes: list[Node] = []
        for block in blocks:
            nodes += self._body.nodes[start : block.span.start]
            nodes += self._replaced(block)
            start = block.span.end
        return nodes + self._body.nodes[start:end]

    def _replaced(self, block: _Block) -> list[Node]:
        if block.function is None:
            return self.rewritten(block.span.start, block.span.end, block.children)
        source = self._body.nodes[block.span.start].source
        inputs, outputs = tuple(block.inputs), tuple(block.outputs)
        call = Node(block.function.name, inputs, outputs, callee=block.function, path=block.span.path, source=source)
        return [call]

    def _share(self, members: list[_Block]) -> None:
        first = members[0]
        for block in members[1:]:
            _bury(block)
        function = Function(
            name=first.span.title,
            inputs=tuple(first.inputs),
            nodes=[],
            outputs=tuple(first.outputs),
            constants=self._body.constants,
            names=self._input_names(first),
            path=first.span.path,
        )
        for block in members:
            block.function = function

    def _input_names(self, block: _Block) -> Mapping[Edge, str]:
        prefix = f"{block.span.path}." if block.span.path else ""
        weights = {edge: self._weights[edge].removeprefix(prefix) for edge in block.inputs if edge in self._weights}
        return {edge: edge.hint for edge in block.inputs} | dict(block.span.arguments) | weights

    def _describe(self, block: _Block) -> _Key:
        """Find what flows in and out of a block; returns what its nodes take, with places instead of names."""
        nodes = self._body.nodes[block.span.start : block.span.end]
        inside = {edge: ("inner", place) for place, edge in enumerate(_given(nodes))}
        taken = dict.fromkeys(edge for node in nodes for edge in node.reads())
        outside = [edge for edge in taken if edge not in inside and not self._is_small_constant(edge)]
        block.inputs = sorted(outside, key=lambda edge: edge in self._weights)
        block.outputs = [edge for edge in inside if self._last_use.get(edge, -1) >= block.span.end]
        places = inside | {edge: ("outer", place) for place, edge in enumerate(block.inputs)}
        return (
            tuple(self._taken_key(edge, places) for edge in _slots(nodes)),
            tuple(self._input_key(edge) for edge in block.inputs),
            tuple(inside[edge] for edge in block.outputs),
        )

    def _taken_key(self, edge: Edge | None, places: Mapping[Edge, tuple[str, int]]) -> object:
        return None if edge is None else places.get(edge) or self._constant_key(edge)

    def _input_key(self, edge: Edge) -> _Key:
        shape = tuple(edge.type.shape) if edge in self._weights else edge.type.rank
        return (edge in self._weights, edge.type.dtype, shape)

    def _constant_key(self, edge: Edge) -> _Key:
        value = self._body.constants[edge]
        return (edge.type.dtype, value.shape, value.tobytes())

    def _is_small_constant(self, edge: Edge) -> bool:
        value: Array | None = self._body.constants.get(edge)
        return value is not None and value.nbytes <= _MAX_CONSTANT_BYTES


def _kind(node: Node) -> _Key:
    # The written form tells 1 from 1.0 and True, and 0.0 from -0.0.
    attributes = tuple(sorted((name, repr(value)) for name, value in node.attributes.items()))
    given = tuple(edge is not None for edge in node.inputs)
    blocks = tuple((name, len(block.inputs), tuple(map(_kind, block.nodes))) for name, block in node.blocks.items())
    return (node.op, node.domain, id(node.callee), attributes, given, len(node.outputs), blocks)


def _given(nodes: Sequence[Node]) -> list[Edge]:
    return [edge for node in nodes for edge in node.gives()]


def _slots(nodes: Sequence[Node]) -> Iterator[Edge | None]:
    """Every place where a node takes, or a block returns, a value."""
    for node in nodes:
        yield from node.inputs
        for block in node.blocks.values():
            yield from _slots(block.nodes)
            yield from block.outputs


def _last_uses(body: Body) -> dict[Edge, int]:
    last = {edge: place for place, node in enumerate(body.nodes) for edge in node.reads()}
    return last | dict.fromkeys(body.outputs, len(body.nodes))


def _tree(blocks: Sequence[_Block]) -> list[_Block]:
    """Hang each block under the one around it; returns those that have none."""
    roots: list[_Block] = []
    around: list[_Block] = []
    for block in blocks:
        while around and around[-1].span.end <= block.span.start:
            around.pop()
        (around[-1].children if around else roots).append(block)
        around.append(block)
    return roots


def _apart(blocks: Sequence[_Block]) -> list[_Block]:
    """Without blocks that lie within an earlier one, as when a module does nothing but call another."""
    kept: list[_Block] = []
    for block in blocks:
        if not kept or block.span.start >= kept[-1].span.end:
            kept.append(block)
    return kept


def _bury(block: _Block) -> None:
    for child in block.children:
        child.alive = False
        _bury(child)
