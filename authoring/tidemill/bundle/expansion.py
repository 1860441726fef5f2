"""How large a model becomes when its functions are written out; counts without writing anything out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tidemill.bundle.skeleton import FunctionKey, NodeOutline, Skeleton
from tidemill.errors import InvalidBundle

__all__ = ["Expansion", "ExpansionLimits", "FunctionUse", "check_expansion", "function_uses"]


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


def check_expansion(model: Skeleton, limits: ExpansionLimits | None = None) -> Expansion:
    """Measure a model, at a cost that does not grow with the result.

    Raises:
        InvalidBundle: It is over a limit, or a function calls itself.
    """
    limits = limits or ExpansionLimits()
    found = _Measure(model, limits).nodes(model.nodes, ())
    if found.nodes > limits.nodes:
        raise InvalidBundle(
            f"the graph has {found.nodes} nodes when its functions are written out; at most {limits.nodes} are loaded"
        )
    return found


def function_uses(model: Skeleton) -> tuple[FunctionUse, ...]:
    """Every function of a model, in the order in which the file has them.

    Raises:
        InvalidBundle: See `check_expansion`.
    """
    check_expansion(model)
    measure = _Measure(model, ExpansionLimits())
    calls = dict.fromkeys(model.functions, 0)
    _count_calls(model.nodes, model.functions, calls)
    return tuple(FunctionUse(key[1], measure.function(key, ()).nodes, count) for key, count in calls.items())


class _Measure:
    """Sizes by function, each worked out once."""

    def __init__(self, model: Skeleton, limits: ExpansionLimits) -> None:
        self._functions = model.functions
        self._limits = limits
        self._known: dict[FunctionKey, Expansion] = {}

    def nodes(self, nodes: Iterable[NodeOutline], callers: tuple[FunctionKey, ...]) -> Expansion:
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
            inner = self.nodes(self._functions[key], (*callers, key))
            self._known[key] = Expansion(inner.nodes, inner.depth + 1)
        return self._known[key]

    def _node(self, node: NodeOutline, callers: tuple[FunctionKey, ...]) -> Expansion:
        if node.callee in self._functions:
            return self.function(node.callee, callers)
        bodies = [self.nodes(body, callers) for body in node.bodies]
        if not bodies:
            return Expansion(1, 0)
        return Expansion(1 + sum(body.nodes for body in bodies), 1 + max(body.depth for body in bodies))


def _count_calls(
    nodes: Iterable[NodeOutline],
    functions: Mapping[FunctionKey, tuple[NodeOutline, ...]],
    calls: dict[FunctionKey, int],
) -> None:
    for node in nodes:
        for body in node.bodies:
            _count_calls(body, functions, calls)
        if node.callee in functions:
            calls[node.callee] += 1
            _count_calls(functions[node.callee], functions, calls)
