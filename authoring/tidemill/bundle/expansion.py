"""How large a model becomes when its functions are written out; counts without writing anything out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

import onnx

from tidemill.errors import InvalidBundle

__all__ = [
    "Expansion",
    "ExpansionLimits",
    "FunctionKey",
    "FunctionUse",
    "callee_key",
    "check_expansion",
    "function_key",
    "function_uses",
    "read_graph",
    "subgraphs",
]

FunctionKey = tuple[str, str, str]
"""What a call names: domain, name and overload."""


@dataclass(frozen=True, slots=True)
class ExpansionLimits:
    """What is still taken: ONNX Runtime works for ever on a kilobyte of functions that call each other often enough.

    Attributes:
        nodes: Nodes when all functions and the bodies of loops and branches are written out once a call.
        depth: Functions and bodies within each other.
    """

    nodes: int = 200_000
    depth: int = 32


@dataclass(frozen=True, slots=True)
class Expansion:
    """The size of a model with its functions written out."""

    nodes: int
    depth: int


@dataclass(frozen=True, slots=True)
class FunctionUse:
    """One function of a model.

    Attributes:
        name: Its name.
        nodes: The nodes that stand for one call, inner calls written out.
        calls: How often it is called in a run of everything once.
    """

    name: str
    nodes: int
    calls: int


def check_expansion(model: onnx.ModelProto, limits: ExpansionLimits | None = None) -> Expansion:
    """Measure a model, at a cost that does not grow with the result.

    Raises:
        InvalidBundle: It is over a limit, or a function calls itself.
    """
    limits = limits or ExpansionLimits()
    found = _Measure(model, limits).nodes(model.graph.node, ())
    if found.nodes > limits.nodes:
        raise InvalidBundle(
            f"the graph has {found.nodes} nodes when its functions are written out; at most {limits.nodes} are loaded"
        )
    return found


def function_uses(model: onnx.ModelProto) -> tuple[FunctionUse, ...]:
    """Every function of a model, in the order in which the file has them.

    Raises:
        InvalidBundle: See `check_expansion`.
    """
    check_expansion(model)
    measure = _Measure(model, ExpansionLimits())
    calls = {function_key(function): 0 for function in model.functions}
    _count_calls(model.graph.node, 1, {function_key(function): function for function in model.functions}, calls)
    return tuple(
        FunctionUse(function.name, measure.function(function_key(function), ()).nodes, calls[function_key(function)])
        for function in model.functions
    )


def read_graph(path: str | PathLike[str]) -> onnx.ModelProto:
    """An ONNX file without the weights that lie beside it.

    Raises:
        InvalidBundle: It is no ONNX file.
    """
    try:
        return onnx.load_model_from_string(Path(path).read_bytes())
    except Exception as error:  # protobuf's DecodeError has no base but this, and protobuf is not imported here
        raise InvalidBundle(f"{Path(path).name} is no ONNX model: {error}") from None


def function_key(function: onnx.FunctionProto) -> FunctionKey:
    """What a node must name to call the function."""
    return function.domain, function.name, function.overload


def callee_key(node: onnx.NodeProto) -> FunctionKey:
    """What a node calls, be it a function or an operator."""
    return node.domain, node.op_type, node.overload


def subgraphs(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """The bodies of a loop or branch."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


class _Measure:
    """Sizes by function, each worked out once."""

    def __init__(self, model: onnx.ModelProto, limits: ExpansionLimits) -> None:
        self._functions = {function_key(function): function for function in model.functions}
        self._limits = limits
        self._known: dict[FunctionKey, Expansion] = {}

    def nodes(self, nodes: Iterable[onnx.NodeProto], callers: tuple[FunctionKey, ...]) -> Expansion:
        count, depth = 0, 0
        for node in nodes:
            found = self._node(node, callers)
            count, depth = count + found.nodes, max(depth, found.depth)
        if len(callers) + depth > self._limits.depth:
            raise InvalidBundle(f"functions and bodies lie deeper than {self._limits.depth} within each other")
        return Expansion(count, depth)

    def function(self, key: FunctionKey, callers: tuple[FunctionKey, ...]) -> Expansion:
        if key in callers:
            raise InvalidBundle(f"function {key[1]!r} calls itself")
        if len(callers) >= self._limits.depth:
            raise InvalidBundle(f"functions lie deeper than {self._limits.depth} within each other")
        if key not in self._known:
            inner = self.nodes(self._functions[key].node, (*callers, key))
            self._known[key] = Expansion(inner.nodes, inner.depth + 1)
        return self._known[key]

    def _node(self, node: onnx.NodeProto, callers: tuple[FunctionKey, ...]) -> Expansion:
        if callee_key(node) in self._functions:
            return self.function(callee_key(node), callers)
        bodies = [self.nodes(body.node, callers) for body in subgraphs(node)]
        if not bodies:
            return Expansion(1, 0)
        return Expansion(1 + sum(body.nodes for body in bodies), 1 + max(body.depth for body in bodies))


def _count_calls(
    nodes: Iterable[onnx.NodeProto],
    times: int,
    functions: dict[FunctionKey, onnx.FunctionProto],
    calls: dict[FunctionKey, int],
) -> None:
    for node in nodes:
        for body in subgraphs(node):
            _count_calls(body.node, times, functions, calls)
        callee = functions.get(callee_key(node))
        if callee is not None:
            calls[callee_key(node)] += times
            _count_calls(callee.node, times, functions, calls)
