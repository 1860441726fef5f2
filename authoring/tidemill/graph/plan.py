"""What will be written of a graph: its live nodes, with repeated modules as calls of shared functions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tidemill.graph.function import share_functions
from tidemill.graph.ir import Body, Function, Node, walk
from tidemill.graph.liveness import live
from tidemill.graph.naming import Namer

__all__ = ["Plan", "SharedFunction", "make_plan", "shared_functions"]


@dataclass(frozen=True, slots=True)
class Plan:
    """A graph that is ready to be written.

    Attributes:
        body: The live part of the traced body.
        nodes: Its nodes, the prologue first.
        functions: Every function that is called, with its name; callees come before callers.
    """

    body: Body
    nodes: Sequence[Node]
    functions: Mapping[Function, str]


@dataclass(frozen=True, slots=True)
class SharedFunction:
    """A function of a graph.

    Attributes:
        name: Its name.
        calls: How many nodes call it.
        nodes: How many nodes it has; calls of other functions count as one.
        saved: How many nodes more there would be if each of its calls were written out in full.
    """

    name: str
    calls: int
    nodes: int
    saved: int


def make_plan(body: Body, dedup: str) -> Plan:
    """The plan for a body; `dedup` is "auto" to share functions or "off" to write every module out."""
    kept = live(body)
    nodes = [*kept.prologue, *(share_functions(kept) if dedup == "auto" else kept.nodes)]
    namer = Namer()
    functions = {function: namer.name(_identifier(function.name)) for function in _callees(nodes)}
    return Plan(kept, nodes, functions)


def shared_functions(plan: Plan) -> dict[str, SharedFunction]:
    """The functions of a plan by name, with how often each is called and what that saves."""
    bodies = [plan.nodes, *(function.nodes for function in plan.functions)]
    calls = Counter(node.callee for nodes in bodies for node in walk(nodes) if node.callee is not None)
    sizes: dict[Function, int] = {}
    for function in plan.functions:  # callees come first
        sizes[function] = sum(1 if node.callee is None else sizes[node.callee] for node in function.nodes)
    return {
        name: SharedFunction(
            name, calls[function], len(function.nodes), (calls[function] - 1) * sizes[function] - calls[function]
        )
        for function, name in plan.functions.items()
    }


def _callees(nodes: Iterable[Node]) -> list[Function]:
    """Every function that is called, each once, callees before callers."""
    found: dict[Function, None] = {}

    def visit(nodes: Iterable[Node]) -> None:
        for node in walk(nodes):
            if node.callee is not None and node.callee not in found:
                visit(node.callee.nodes)
                found[node.callee] = None

    visit(nodes)
    return list(found)


def _identifier(name: str) -> str:
    return "".join(letter if letter.isalnum() or letter in "_.-" else "_" for letter in name)
