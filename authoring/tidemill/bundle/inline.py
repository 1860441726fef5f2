"""Writes functions out where they are called, each node named by the path of calls that leads to it.

ONNX Runtime inlines as well, and calls the nodes `_inlfunc_Block_token_7_q`; here they are `layers.7.attn.q`, so that
errors and profiles speak of the user's layers. Quantisation tools do not look into functions at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest

import onnx

from tidemill.bundle.expansion import check_expansion
from tidemill.bundle.graphs import subgraphs
from tidemill.bundle.skeleton import FunctionKey, read_skeleton

__all__ = ["inline_functions"]


def inline_functions(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy of a model that computes the same without functions.

    Operators of a function run under the model's opset, as they do in ONNX Runtime.

    Raises:
        InvalidBundle: It would become too large, or a function calls itself; see `check_expansion`.
    """
    flat = onnx.ModelProto()
    flat.CopyFrom(model)
    if model.functions:
        check_expansion(read_skeleton(model.SerializeToString()))
        nodes = _Inliner(model).expand(model.graph.node, _Scope())
        del flat.graph.node[:], flat.functions[:]
        flat.graph.node.extend(nodes)
        _settle_opsets(flat, model.functions)
    return flat


@dataclass(frozen=True, slots=True)
class _Scope:
    """What names mean in one call.

    Attributes:
        path: The path of calls; "" in the graph itself, whose names stay as they are.
        values: Names in the function by name there.
        attributes: What the call gives, by name.
    """

    path: str = ""
    values: dict[str, str] = field(default_factory=dict)
    attributes: Mapping[str, onnx.AttributeProto] = field(default_factory=dict)


class _Inliner:
    def __init__(self, model: onnx.ModelProto) -> None:
        self._functions = {_function_key(function): function for function in model.functions}
        self._values = _Names(_value_names(model.graph))
        self._nodes = _Names(_node_names(model.graph.node, self._functions))

    def expand(self, nodes: Iterable[onnx.NodeProto], scope: _Scope) -> list[onnx.NodeProto]:
        expanded = []
        for node in nodes:
            placed = self._place(node, scope)
            function = self._functions.get(_callee_key(node))
            expanded += [placed] if function is None else self._call(placed, function)
        return expanded

    def _call(self, call: onnx.NodeProto, function: onnx.FunctionProto) -> list[onnx.NodeProto]:
        values = {formal: actual for formal, actual in zip_longest(function.input, call.input, fillvalue="") if formal}
        copies = []
        for formal, actual in zip(function.output, call.output, strict=False):
            if actual and formal in values:  # an input passed through, or one value returned twice
                copies.append((formal, actual))
            elif actual:
                values[formal] = actual
        defaults = {attribute.name: attribute for attribute in function.attribute_proto}
        scope = _Scope(call.name, values, defaults | {attribute.name: attribute for attribute in call.attribute})
        body = self.expand(function.node, scope)
        return body + [self._copy(values[formal], actual, call.name) for formal, actual in copies]

    def _copy(self, source: str, target: str, path: str) -> onnx.NodeProto:
        return onnx.helper.make_node("Identity", [source], [target], self._nodes.new(f"{path}.Identity"))

    def _place(self, node: onnx.NodeProto, scope: _Scope) -> onnx.NodeProto:
        """A copy of the node with the names and attributes that it has in this scope."""
        placed = onnx.NodeProto()
        placed.CopyFrom(node)
        placed.name = self._node_name(node, scope)
        placed.input[:] = [self._value(name, scope) for name in node.input]
        placed.output[:] = [self._value(name, scope) for name in node.output]
        del placed.attribute[:]
        placed.attribute.extend(self._attributes(node, scope))
        return placed

    def _node_name(self, node: onnx.NodeProto, scope: _Scope) -> str:
        local = node.name or node.op_type
        if _callee_key(node) in self._functions:  # only a part of the names within
            return f"{scope.path}.{local}" if scope.path else local
        return self._nodes.new(f"{scope.path}.{local}") if scope.path else node.name

    def _value(self, name: str, scope: _Scope) -> str:
        if not name or not scope.path:
            return name
        if name not in scope.values:
            scope.values[name] = self._values.new(f"{scope.path}.{name}")
        return scope.values[name]

    def _attributes(self, node: onnx.NodeProto, scope: _Scope) -> Iterator[onnx.AttributeProto]:
        for attribute in node.attribute:
            placed = onnx.AttributeProto()
            if not attribute.ref_attr_name:
                placed.CopyFrom(attribute)
                self._enter_bodies(placed, scope)
            elif attribute.ref_attr_name in scope.attributes:
                placed.CopyFrom(scope.attributes[attribute.ref_attr_name])
                placed.name = attribute.name
            else:  # not given and without a default: the operator's own default holds
                continue
            yield placed

    def _enter_bodies(self, attribute: onnx.AttributeProto, scope: _Scope) -> None:
        for body in [attribute.g] if attribute.HasField("g") else attribute.graphs:
            for value in (*body.input, *body.output, *body.initializer, *body.value_info):
                value.name = self._value(value.name, scope)
            nodes = self.expand(body.node, scope)
            del body.node[:]
            body.node.extend(nodes)


class _Names:
    """Hands out names that are not taken."""

    def __init__(self, taken: Iterable[str]) -> None:
        self._taken = set(taken)

    def new(self, hint: str) -> str:
        name, count = hint, 1
        while name in self._taken:
            count += 1
            name = f"{hint}_{count}"
        self._taken.add(name)
        return name


def _function_key(function: onnx.FunctionProto) -> FunctionKey:
    return function.domain, function.name, function.overload


def _callee_key(node: onnx.NodeProto) -> FunctionKey:
    return node.domain, node.op_type, node.overload


def _value_names(graph: onnx.GraphProto) -> Iterator[str]:
    yield from (value.name for value in (*graph.input, *graph.output, *graph.initializer))
    yield from (tensor.values.name for tensor in graph.sparse_initializer)
    for node in graph.node:
        yield from node.output
        for body in subgraphs(node):
            yield from _value_names(body)


def _node_names(nodes: Iterable[onnx.NodeProto], functions: Mapping[FunctionKey, onnx.FunctionProto]) -> Iterator[str]:
    for node in nodes:
        if _callee_key(node) not in functions:
            yield node.name
        for body in subgraphs(node):
            yield from _node_names(body.node, functions)


def _settle_opsets(flat: onnx.ModelProto, functions: Sequence[onnx.FunctionProto]) -> None:
    """Import what the bodies need and drop the domains that only functions had."""
    versions = {entry.domain: entry.version for function in functions for entry in function.opset_import}
    versions |= {entry.domain: entry.version for entry in flat.opset_import}
    used = _domains(flat.graph.node) | {""}
    del flat.opset_import[:]
    flat.opset_import.extend(
        onnx.helper.make_opsetid(domain, version) for domain, version in versions.items() if domain in used
    )


def _domains(nodes: Iterable[onnx.NodeProto]) -> set[str]:
    found = set()
    for node in nodes:
        found.add(node.domain)
        for body in subgraphs(node):
            found |= _domains(body.node)
    return found
