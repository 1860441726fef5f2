"""Tracing against max 26.7: graphs, subgraphs, dims, dtypes and the errors on the way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from traced_modules import (
    CPU,
    F32,
    R2,
    TYPES,
    Linear,
    P,
    R,
    Stack,
    built,
    in_graph,
    out_types,
    returned,
    subgraph_of,
    tensor,
    types,
)

from tidemill import nn, tree
from tidemill.dtype import DType
from tidemill.graph import (
    BufferType,
    Dim,
    Graph,
    Module,
    Shape,
    StaticDim,
    SymbolicDim,
    TensorType,
    Weight,
    ops,
)
from tidemill.nn import add_layer_hook, clear_hooks


def generate(x: Any) -> Iterator[Any]:
    yield x
    yield x


def hooked(hook: Callable[..., Any], run: Callable[[], Any]) -> Any:
    add_layer_hook(hook)
    try:
        return run()
    finally:
        clear_hooks()


def hook_order() -> list[Any]:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.c = Linear(), Linear(), Linear()

        def __call__(self, x: Any) -> Any:
            return self.c(self.a(x) + self.b(x))

    seen: list[Any] = []

    def hook(layer: Any, args: Any, kwargs: Any, outputs: Any) -> None:
        name = "MLP" if isinstance(layer, Two) else type(layer).__name__
        seen.append([name, len(args), list(kwargs), type(outputs).__name__])

    hooked(hook, lambda: Two().trace(tensor("b", 4)))
    return seen


def hook_replaces() -> int:
    def hook(layer: Any, args: Any, kwargs: Any, outputs: Any) -> Any:
        return (outputs, outputs)

    return hooked(hook, lambda: len(P().trace(tensor(1)).output_types))


def call_returns() -> dict[str, Any]:
    def run(sub: Graph, x: Any) -> dict[str, Any]:
        result = ops.call(sub, x, prefix="layers.0.")
        return {
            "type": type(result).__name__,
            "el": type(result[0]).__name__,
            "out": types(result[0].type),
            "inputs": types(*(value.tensor.type for value in sub.inputs)),
            "sub_out": types(*sub.output_types),
        }

    result: dict[str, Any] = built(run, "batch", 4)
    return result


def dict_inputs() -> dict[str, Any]:
    def run(graph: Graph, x: Any) -> dict[str, Any]:
        layer = R(lambda tensors: tensors["a"] + tensors["b"])
        sub = layer.build_subgraph("s", [{"b": x, "a": x}])
        result = ops.call(sub, x, x)
        return {"n": len(result), "out": types(*(value.tensor.type for value in result)), "sub_in": len(sub.inputs)}

    result: dict[str, Any] = in_graph(run)
    return result


def subgraph_weights(layer: nn.Module, prefix: str) -> list[str]:
    def run(graph: Graph, x: Any) -> list[str]:
        sub = subgraph_of(graph, layer, x, prefix=prefix)
        return [f"{name}|placeholder" if name in sub.placeholders else name for name in sub.weight_specs]

    result: list[str] = in_graph(run)
    return result


def named_stack() -> Stack:
    stack = Stack()
    stack.state_dict()
    return stack


def mixed() -> dict[str, list[str]]:
    def run(graph: Graph, x: Any) -> dict[str, list[str]]:
        stack = named_stack()
        sub = subgraph_of(graph, stack.layers[0], x)
        h = ops.call(sub, x, prefix="layers.0.")[0]
        graph.output(stack.layers[1](h))
        names = [name for name in graph.weight_specs if name == "layers.1.weight"]
        return {"weights": [*names, *(f"{name}|placeholder" for name in sub.placeholders)]}

    result: dict[str, list[str]] = in_graph(run)
    return result


def two_graphs() -> dict[str, list[str]]:
    module = Module()

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.l = Linear()

        def __call__(self, x: Any) -> Any:
            return self.l(x)

    graphs = [Net().trace(tensor("b", 4), name=name, module=module) for name in ("enc", "dec")]
    weights = [name for graph in graphs for name in graph.weight_specs]
    return {"names": module.top_level_graph_names(), "weights": weights}


def unused() -> list[str]:
    class Unused(Linear):
        def __init__(self) -> None:
            super().__init__()
            self.other = Weight("other", F32, (4, 4), CPU)

    return list(Unused().trace(tensor("b", 4)).weight_specs)


def combine(left: str, right: str) -> list[str]:
    return out_types(lambda x, y: x + y, tensor(2, dtype=TYPES[left]), tensor(2, dtype=TYPES[right]))


def weak(left: str, value: Any) -> list[str]:
    return out_types(lambda x: x + value, tensor(2, dtype=TYPES[left]))


def raise_zero(x: Any) -> Any:
    return 1 / 0


def current_after() -> object:
    with pytest.raises(ZeroDivisionError):
        R(raise_zero).trace(tensor(1))
    return Graph.current


MATCHES: dict[str, Callable[[], object]] = {
    "trace.name_default": lambda: [P().trace(tensor(1)).name],
    "trace.name_custom": lambda: P().trace(tensor(1), name="foo bar/1").name,
    "trace.twice_no_weights": lambda: (lambda module: [module.trace(tensor(1)).name for _ in range(2)])(P()),
    "trace.out_none": lambda: returned(lambda x: None),
    "trace.out_one": lambda: returned(lambda x: x),
    "trace.out_tuple": lambda: returned(lambda x: (x, x + 1)),
    "trace.out_list": lambda: returned(lambda x: [x, x + 1]),
    "trace.out_generator": lambda: returned(generate),
    "trace.out_numpy": lambda: returned(lambda x: np.ones(1, np.float32)),
    "trace.out_float": lambda: returned(lambda x: 1.0),
    "trace.out_empty_tuple": lambda: returned(lambda x: ()),
    "trace.out_same_twice": lambda: returned(lambda x: (x, x)),
    "trace.input_kind": lambda: _input_kinds(),
    "trace.exception_in_call": lambda: R(raise_zero).trace(tensor(1)),
    "trace.current_after_exception": current_after,
    "weight.no_graph": lambda: Weight("w", F32, (2, 3), CPU) + 1,
    "weight.T_no_graph": lambda: Weight("w", F32, (2, 3), CPU).T,
    "module.call_no_graph": lambda: Linear()(Weight("w", F32, (4, 4), CPU)),
    "weight.shape_outside_graph": lambda: _outside(Weight("w", F32, (2, 3), CPU)),
    "graph.weight_same_object_twice": lambda: _used_twice(),
    "graph.unused_weight": unused,
    "hooks.order": hook_order,
    "hooks.replace_output": hook_replaces,
    "subgraph.shorter_prefix": lambda: {"weights": subgraph_weights(named_stack().layers[0], "layers.")},
    "subgraph.mixed_direct_other": mixed,
    "subgraph.no_current_graph": lambda: Linear().build_subgraph("a", [1]),
    "subgraph.in_dict": dict_inputs,
    "call.returns": call_returns,
    "module.two_graphs": two_graphs,
    "dims.add_same": lambda: out_types(lambda x, y: x + y, tensor("batch", 4), tensor("batch", 4)),
    "dims.add_broadcast_1": lambda: out_types(lambda x, y: x + y, tensor("batch", 4), tensor(1, 4)),
    "dims.concat": lambda: out_types(lambda x, y: ops.concat([x, y], axis=0), tensor("a", 4), tensor("b", 4)),
    "dims.reshape_algebra": lambda: out_types(
        lambda x: x.reshape((x.shape[0] * x.shape[1], 4)), tensor("batch", "seq", 4)
    ),
    "dims.reshape_minus1": lambda: out_types(lambda x: x.reshape((-1, 4)), tensor("batch", "seq", 4)),
    "dims.bad_symbol": lambda: SymbolicDim("1bad"),
    "dims.bad_symbol_space": lambda: SymbolicDim("a b"),
    "dims.empty_symbol": lambda: SymbolicDim(""),
    "dims.float": lambda: TensorType(F32, [2.5], CPU),  # type: ignore[list-item]
    "dims.algebra": lambda: [
        str(Dim("a") + 1),
        str(Dim("a") * 2),
        str((Dim("a") + 3) // 4),
        str(Dim(3) + 4),
        str(Dim("a") - Dim("a")),
    ],
    "dims.int_symbolic": lambda: int(Dim("a")),
    "dims.eq": lambda: [
        Dim(3) == 3,
        Dim("a") == "a",
        Dim("a") == SymbolicDim("a"),
        Dim("a") == "b",
        Dim(3) == StaticDim(3),
    ],
    "dims.shape_obj": lambda: [
        repr(Shape([2, "a"])),
        Shape([2, "a"]).rank,
        repr(Shape([2, "a"]).static_dims),
        Shape([2, "a"]) == [2, "a"],
    ],
    "promote.f32_f64": lambda: combine("f32", "f64"),
    "promote.bool_f32": lambda: combine("bool", "f32"),
    "promote.i32_pyfloat": lambda: weak("i32", 1.5),
    "promote.f32_pyint": lambda: weak("f32", 1),
    "promote.u8_pyneg": lambda: weak("u8", -1),
    "promote.f32_np64": lambda: weak("f32", np.array([0.1, 0.2])),
    "promote.div_int": lambda: out_types(
        lambda x, y: x / y, tensor(2, dtype=DType.int32), tensor(2, dtype=DType.int32)
    ),
    "promote.eq": lambda: out_types(lambda x, y: x == y, tensor(2), tensor(2)),
    "value.iter": lambda: returned(lambda x: list(x)),
    "value.len": lambda: returned(lambda x: len(x)),
    "value.repr": lambda: in_graph(lambda g, x: repr(x), "b", 3),
    "tree.none_is_leaf": lambda: [tree.flatten({"b": None, "a": [2, 3], "c": 1})[0]],
}

# Where MAX prints its compiler's words: the class of the error, and what ours must say.
RAISES: dict[str, tuple[Callable[[], object], str]] = {
    "trace.out_nested": (
        lambda: returned(lambda x: [[x]]),
        "must be a graph.TensorValue, or a graph.Weight, not 'list'",
    ),
    "trace.too_many_inputs": (
        lambda: R2().trace(tensor(1), tensor(1), tensor(1)),
        "3 positional arguments but 4",
    ),
    "graph.weight_collision": (lambda: _collision(), "Weight 'w' already exists in Graph 'g'"),
    "subgraph.out_generator": (lambda: _subgraph_returns(lambda x: (v for v in [x])), "not 'generator'"),
    "subgraph.out_dict": (lambda: _subgraph_returns(lambda x: {"a": x}), "not 'dict'"),
    "call.arg_count": (lambda: built(lambda sub, x: ops.call(sub, x, x)), "Expected 1 args to call to a, got 2"),
    "call.arg_shape": (
        lambda: built(lambda sub, x: ops.call(sub, ops.concat([x, x], 1), prefix="layers.0.")),
        "Subgraph a has wrong type for argument 0",
    ),
    "call.arg_dtype": (
        lambda: built(lambda sub, x: ops.call(sub, x.cast(DType.float16), prefix="layers.0.")),
        "Subgraph a has wrong type for argument 0",
    ),
    "add_subgraph.capture": (lambda: _captured(), "can not capture values"),
    "dims.add_different": (
        lambda: out_types(lambda x, y: x + y, tensor("batch", 4), tensor("other", 4)),
        "at axis 0 (value batch)",
    ),
    "dims.add_static_mismatch": (
        lambda: out_types(lambda x, y: x + y, tensor(3, 4), tensor(2, 4)),
        "neither equivalent nor broadcastable",
    ),
    "dims.reshape_bad": (
        lambda: out_types(lambda x: x.reshape(("batch", 5)), tensor("batch", 4)),
        "number of elements must match: [batch, 4] != [batch, 5]",
    ),
    "dims.reshape_unknown": (
        lambda: out_types(lambda x: x.reshape(("newdim", 4)), tensor("batch", 4)),
        "number of elements must match: [batch, 4] != [newdim, 4]",
    ),
    "dims.input_algebraic": (lambda: P().trace(tensor(Dim("a") + 1, 4)), "an input's dim is a size or a name"),
    "dims.input_algebraic2": (
        lambda: R2().trace(tensor("a", 4), tensor(Dim("a") * 2, 4)),
        "input 'y' has a * 2 on axis 0",
    ),
    "promote.f32_i32": (lambda: combine("f32", "i32"), "Unsafe cast from int32 to float32"),
    "promote.f16_i64": (lambda: combine("f16", "i64"), "Unsafe cast from int64 to float16"),
    "promote.u8_i8": (lambda: combine("u8", "i8"), "Unsafe cast from int8 to uint8"),
}


def _input_kinds() -> list[str]:
    kinds: list[str] = []

    class Kinds(nn.Module):
        def __call__(self, x: Any, y: Any) -> None:
            kinds.extend([type(x).__name__, type(y).__name__])

    Kinds().trace(tensor(1), BufferType(F32, [1], CPU))
    return kinds


def _outside(weight: Weight) -> list[str]:
    return [repr(list(weight.shape)), repr(weight.dtype), str(weight.device)]


def _used_twice() -> list[str]:
    weight = Weight("w", F32, (4, 4), CPU)
    graph = Graph("g", lambda x: x @ weight @ weight, [tensor(2, 4)])
    return list(graph.weight_specs)


def _collision() -> Graph:
    one, other = Weight("w", F32, (4,), CPU), Weight("w", F32, (4,), CPU)
    return Graph("g", lambda x: x + one + other, [tensor(2, 4)])


def _subgraph_returns(function: Callable[[Any], Any]) -> Any:
    return in_graph(lambda g, x: R(function).build_subgraph("s", [x]))


def _captured() -> Any:
    return in_graph(lambda g, x: g.add_subgraph("s", lambda y: y + x, [tensor(2, 4)]))


@pytest.mark.parametrize("case", MATCHES)
def test_behaves_as_observed(case: str, observed: dict[str, dict[str, Any]]) -> None:
    expected = observed[case]
    if expected["outcome"] == "ok":
        assert MATCHES[case]() == expected["observed"]
        return
    with pytest.raises(Exception) as caught:  # noqa: PT011  (class and text are compared below)
        MATCHES[case]()
    assert f"{type(caught.value).__name__}: {caught.value}" == expected["observed"]


@pytest.mark.parametrize("case", RAISES)
def test_raises_as_observed_and_says_why(case: str, observed: dict[str, dict[str, Any]]) -> None:
    run, text = RAISES[case]
    with pytest.raises(Exception) as caught:  # noqa: PT011  (class and text are compared below)
        run()
    assert type(caught.value).__name__ == observed[case]["exception"]
    assert text in str(caught.value)
