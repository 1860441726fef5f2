"""What calls what in an ONNX model, and nothing else of it; read without onnx, which takes its time to import."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tidemill.bundle.wire import fields
from tidemill.errors import InvalidBundle

__all__ = ["FunctionKey", "NodeOutline", "Skeleton", "read_skeleton"]

FunctionKey = tuple[str, str, str]
"""What a call names: domain, name and overload."""

_DEEPEST = 100  # protobuf takes no more either

# Field numbers of onnx.proto.
_MODEL_GRAPH, _MODEL_FUNCTION = 7, 25
_GRAPH_NODE = 1
_FUNCTION_NAME, _FUNCTION_NODE, _FUNCTION_DOMAIN, _FUNCTION_OVERLOAD = 1, 7, 10, 13
_NODE_OP, _NODE_ATTRIBUTE, _NODE_DOMAIN, _NODE_OVERLOAD = 4, 5, 7, 8
_ATTRIBUTE_GRAPHS = (6, 11)


@dataclass(frozen=True, slots=True)
class NodeOutline:
    """One node.

    Attributes:
        callee: What it calls, be it a function or an operator.
        bodies: The nodes of its loop bodies or branches.
    """

    callee: FunctionKey
    bodies: tuple[tuple[NodeOutline, ...], ...]


@dataclass(frozen=True, slots=True)
class Skeleton:
    """The nodes of a graph and of the functions by what calls them."""

    nodes: tuple[NodeOutline, ...]
    functions: Mapping[FunctionKey, tuple[NodeOutline, ...]]


def read_skeleton(model: bytes) -> Skeleton:
    """Read a serialised model.

    Raises:
        InvalidBundle: It is no ONNX model, or its bodies lie too deep.
    """
    nodes: tuple[NodeOutline, ...] = ()
    functions = {}
    for number, content in fields(memoryview(model)):
        if number == _MODEL_GRAPH:
            nodes = _nodes(content, _GRAPH_NODE, 0)
        elif number == _MODEL_FUNCTION:
            key = _key(content, _FUNCTION_DOMAIN, _FUNCTION_NAME, _FUNCTION_OVERLOAD)
            functions[key] = _nodes(content, _FUNCTION_NODE, 0)
    return Skeleton(nodes, functions)


def _nodes(owner: memoryview, node_field: int, depth: int) -> tuple[NodeOutline, ...]:
    if depth > _DEEPEST:
        raise InvalidBundle(f"loops and branches lie deeper than {_DEEPEST} within each other")
    return tuple(_node(content, depth) for number, content in fields(owner) if number == node_field)


def _node(node: memoryview, depth: int) -> NodeOutline:
    bodies = tuple(
        _nodes(body, _GRAPH_NODE, depth + 1)
        for number, attribute in fields(node)
        if number == _NODE_ATTRIBUTE
        for kind, body in fields(attribute)
        if kind in _ATTRIBUTE_GRAPHS
    )
    return NodeOutline(_key(node, _NODE_DOMAIN, _NODE_OP, _NODE_OVERLOAD), bodies)


def _key(message: memoryview, domain: int, name: int, overload: int) -> FunctionKey:
    texts = {
        number: bytes(content).decode(errors="replace")
        for number, content in fields(message)
        if number in (domain, name, overload)
    }
    return texts.get(domain, ""), texts.get(name, ""), texts.get(overload, "")
