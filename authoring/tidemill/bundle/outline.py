"""An ONNX graph for people to look at: nodes, what flows between them, and the functions they share; no weights.

Read without onnx, as the server has no need of it to serve.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tidemill.bundle.wire import fields

__all__ = ["FunctionOutline", "GraphOutline", "NodeLine", "read_outline"]

# Field numbers of onnx.proto.
_MODEL_GRAPH, _MODEL_FUNCTION = 7, 25
_GRAPH_NODE, _GRAPH_INITIALIZER, _GRAPH_INPUT, _GRAPH_OUTPUT = 1, 5, 11, 12
_FUNCTION_NAME, _FUNCTION_INPUT, _FUNCTION_OUTPUT, _FUNCTION_NODE, _FUNCTION_DOMAIN = 1, 4, 5, 7, 10
_NODE_INPUT, _NODE_OUTPUT, _NODE_NAME, _NODE_OP, _NODE_DOMAIN = 1, 2, 3, 4, 7
_TENSOR_NAME, _VALUE_NAME = 8, 1


@dataclass(frozen=True, slots=True)
class NodeLine:
    """One node.

    Attributes:
        op: Its operator, or the function that it calls.
        name: Its own name.
        domain: Where the operator or function is from; "" for ONNX's own.
        inputs: The values that it takes, "" for one left out.
        outputs: The values that it makes.
    """

    op: str
    name: str
    domain: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FunctionOutline:
    """A function that nodes call by domain and name."""

    domain: str
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    nodes: tuple[NodeLine, ...]


@dataclass(frozen=True, slots=True)
class GraphOutline:
    """A graph and its functions.

    Attributes:
        inputs: What callers give.
        outputs: What they get.
        weights: The names of the weights and constants.
        nodes: In the order of the file, which is an order of execution.
        functions: In the order of the file.
        truncated: Whether there are more nodes than were asked for.
    """

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    weights: tuple[str, ...]
    nodes: tuple[NodeLine, ...]
    functions: tuple[FunctionOutline, ...]
    truncated: bool


def read_outline(model: bytes | memoryview, most_nodes: int = 2000) -> GraphOutline:
    """Read a serialised model.

    Args:
        model: The file's content; of a mapped file only what is shown is read.
        most_nodes: How many nodes to read, of the graph and of each function.

    Raises:
        InvalidBundle: It is no ONNX model.
    """
    graph = memoryview(b"")
    functions = []
    for number, content in fields(memoryview(model)):
        if number == _MODEL_GRAPH:
            graph = content
        elif number == _MODEL_FUNCTION:
            functions.append(_function(content, most_nodes))
    nodes = _nodes(graph, _GRAPH_NODE, most_nodes + 1)
    weights = tuple(_first(tensor, _TENSOR_NAME) for tensor in _all(graph, _GRAPH_INITIALIZER))
    given = (_first(value, _VALUE_NAME) for value in _all(graph, _GRAPH_INPUT))
    known = set(weights)
    return GraphOutline(
        inputs=tuple(name for name in given if name not in known),
        outputs=tuple(_first(value, _VALUE_NAME) for value in _all(graph, _GRAPH_OUTPUT)),
        weights=weights,
        nodes=nodes[:most_nodes],
        functions=tuple(functions),
        truncated=len(nodes) > most_nodes,
    )


def _function(content: memoryview, most_nodes: int) -> FunctionOutline:
    return FunctionOutline(
        domain=_first(content, _FUNCTION_DOMAIN),
        name=_first(content, _FUNCTION_NAME),
        inputs=_texts(content, _FUNCTION_INPUT),
        outputs=_texts(content, _FUNCTION_OUTPUT),
        nodes=_nodes(content, _FUNCTION_NODE, most_nodes),
    )


def _nodes(owner: memoryview, field: int, most: int) -> tuple[NodeLine, ...]:
    found: list[NodeLine] = []
    for content in _all(owner, field):
        if len(found) == most:
            break
        found.append(_node(content))
    return tuple(found)


def _node(content: memoryview) -> NodeLine:
    return NodeLine(
        op=_first(content, _NODE_OP),
        name=_first(content, _NODE_NAME),
        domain=_first(content, _NODE_DOMAIN),
        inputs=_texts(content, _NODE_INPUT),
        outputs=_texts(content, _NODE_OUTPUT),
    )


def _all(message: memoryview, field: int) -> Iterator[memoryview]:
    return (content for number, content in fields(message) if number == field)


def _texts(message: memoryview, field: int) -> tuple[str, ...]:
    return tuple(bytes(content).decode(errors="replace") for content in _all(message, field))


def _first(message: memoryview, field: int) -> str:
    return next(iter(_texts(message, field)), "")
