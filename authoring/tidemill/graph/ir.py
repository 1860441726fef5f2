"""What a trace leaves behind: edges, nodes and bodies; plain records that know no user-facing class."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from tidemill.graph.type import TensorType
from tidemill.protocol.types import Array

__all__ = ["Attribute", "Block", "Body", "Edge", "Function", "Node", "Span", "walk"]

Attribute: TypeAlias = int | float | str | Sequence[int] | Sequence[float]


@dataclass(eq=False, slots=True)
class Edge:
    """A value that flows between nodes; it is compared by identity and gets its final name at export.

    Attributes:
        type: Its type.
        hint: What it would like to be called.
        producer: The node that gives it; None for inputs, weights and constants.
    """

    type: TensorType
    hint: str = ""
    producer: Node | None = None


@dataclass(eq=False, slots=True)
class Node:
    """One application of an ONNX operator, or of a function.

    Attributes:
        op: The operator's name, or the function's.
        inputs: What it takes; None for an optional input that is left out.
        outputs: What it gives.
        attributes: ONNX attributes; the type of each value decides the attribute's type.
        domain: The operator set; "" is ONNX's own.
        callee: The function that is called, if it is not an operator.
        path: Where in the module tree it stands; "" for the root or where it is not known.
        source: The user's line that asked for it, as "module:line".
        blocks: Branches and loop bodies, by the name of the attribute that holds them.
    """

    op: str
    inputs: tuple[Edge | None, ...]
    outputs: tuple[Edge, ...]
    attributes: Mapping[str, Attribute] = field(default_factory=dict)
    domain: str = ""
    callee: Function | None = None
    path: str = ""
    source: str = ""
    blocks: Mapping[str, Block] = field(default_factory=dict)

    def reads(self) -> Iterator[Edge]:
        """What it needs from outside: the inputs that are given, then what its blocks see of what is around them."""
        yield from (edge for edge in self.inputs if edge is not None)
        for block in self.blocks.values():
            yield from block.reads()

    def gives(self) -> Iterator[Edge]:
        """Its outputs, then every edge that only exists within its blocks."""
        yield from self.outputs
        for block in self.blocks.values():
            yield from block.gives()


@dataclass(eq=False, slots=True)
class Block:
    """A branch or a loop body: nodes that run when the node that holds them says so, and see all values around it.

    Attributes:
        inputs: What each run of the block is given.
        nodes: The operations.
        outputs: What it returns; each is an output of one of its nodes.
    """

    inputs: tuple[Edge, ...]
    nodes: Sequence[Node]
    outputs: tuple[Edge, ...]

    def reads(self) -> Iterator[Edge]:
        """What it takes from the values around it."""
        own = set(self.gives())
        yield from (edge for node in self.nodes for edge in node.reads() if edge not in own)

    def gives(self) -> Iterator[Edge]:
        """Every edge that only exists within it."""
        yield from self.inputs
        for node in self.nodes:
            yield from node.gives()


@dataclass(slots=True)
class Span:
    """The nodes that one call of a module appended: `nodes[start:end]` of the body.

    Attributes:
        path: The module's path, such as "encoder.layer.0"; "" for the root or where it is not known.
        title: The module's class name.
        arguments: What the arguments were called, by edge.
    """

    path: str
    title: str
    start: int
    end: int = -1
    arguments: Mapping[Edge, str] = field(default_factory=dict)


@dataclass(eq=False, slots=True)
class Body:
    """Nodes in order of execution, with what flows in and out.

    Attributes:
        inputs: The declared inputs.
        weights: The weights used, by name, in order of first use.
        constants: Values known at trace time, by the edge that carries them.
        prologue: Nodes that only need the inputs' shapes; they run before `nodes`.
        nodes: The operations.
        outputs: What the body returns.
        spans: Which module appended which nodes.
    """

    inputs: list[Edge] = field(default_factory=list)
    weights: dict[str, Edge] = field(default_factory=dict)
    constants: dict[Edge, Array] = field(default_factory=dict)
    prologue: list[Node] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)
    outputs: list[Edge] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)


@dataclass(eq=False, slots=True)
class Function:
    """A body that is written once and called often; weights are its last inputs.

    Attributes:
        name: Its name, unique within a model once exported.
        inputs: Values first, then weights.
        nodes: The operations.
        outputs: What it returns.
        constants: Values known at trace time.
        names: What the inputs are called inside.
        path: Where in the module tree it was traced; what its nodes are named relative to.
    """

    name: str
    inputs: tuple[Edge, ...]
    nodes: list[Node]
    outputs: tuple[Edge, ...]
    constants: Mapping[Edge, Array]
    names: Mapping[Edge, str] = field(default_factory=dict)
    path: str = ""


def walk(nodes: Iterable[Node]) -> Iterator[Node]:
    """Every node, with those in blocks right after the node that holds them."""
    for node in nodes:
        yield node
        for block in node.blocks.values():
            yield from walk(block.nodes)
