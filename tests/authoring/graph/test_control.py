from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tidemill.dtype import DType
from tidemill.engine.session import SessionOptions, open_session
from tidemill.graph import Graph, TensorType, TensorValue, ops
from tidemill.graph.check import check_model
from tidemill.graph.export import to_model
from tidemill.nn import Linear, Module

Check = Callable[..., Any]

X = np.arange(-3, 3, dtype=np.float32).reshape(2, 3)
FLOATS = TensorType(DType.float32, ["n", 3])
FLAG = TensorType(DType.bool, [])


def run(graph: Graph, *inputs: Any, **weights: Any) -> list[Any]:
    model = to_model(graph, weights="inputs")
    check_model(model)
    feed = {spec.name: np.asarray(array) for spec, array in zip(graph.input_specs, inputs, strict=True)}
    outputs = open_session(model.SerializeToString(), SessionOptions(threads=1)).run(feed | weights)
    return [outputs[info.name] for info in model.graph.output]


@pytest.mark.parametrize("flag", [True, False])
def test_cond_runs_the_chosen_branch_over_captured_values(check_op: Check, flag: bool) -> None:
    def op(x: TensorValue, flag: TensorValue) -> list[TensorValue]:
        twice = x * 2
        return ops.cond(flag, [x.type], lambda: ops.relu(twice) + 1, lambda: [x - twice])

    expect = np.maximum(X * 2, 0) + 1 if flag else X - X * 2
    check_op(op, X, np.array(flag), expect=expect, dims=[("n", 3), ()])


@pytest.mark.parametrize("flag", [True, False])
def test_a_branch_may_return_its_argument_a_constant_or_one_value_twice(check_op: Check, flag: bool) -> None:
    def op(x: TensorValue, flag: TensorValue) -> list[TensorValue]:
        scalar = TensorType(DType.float32, [])
        return ops.cond(flag, [x.type, x.type, scalar], lambda: (x, x, 1.5), lambda: (x, x + 1, 2))

    expect = [X, X, np.float32(1.5)] if flag else [X, X + 1, np.float32(2)]
    check_op(op, X, np.array(flag), expect=expect, dims=[("n", 3), ()])


@pytest.mark.parametrize(("outer", "inner"), [(True, True), (True, False), (False, True)])
def test_branches_nest(check_op: Check, outer: bool, inner: bool) -> None:
    def op(x: TensorValue, a: TensorValue, b: TensorValue) -> list[TensorValue]:
        def then() -> list[TensorValue]:
            y = x + 1
            return ops.cond(b, [x.type], lambda: y * 3, lambda: y - x)

        return ops.cond(a, [x.type], then, lambda: -x)

    expect = ((X + 1) * 3 if inner else X + 1 - X) if outer else -X
    check_op(op, X, np.array(outer), np.array(inner), expect=expect, dims=[("n", 3), (), ()])


@pytest.mark.parametrize("flag", [True, False])
def test_a_new_symbol_names_the_size_that_a_branch_gives(check_op: Check, flag: bool) -> None:
    def op(x: TensorValue, flag: TensorValue) -> TensorValue:
        out = ops.cond(flag, [TensorType(DType.float32, ["m", 3])], lambda: x, lambda: ops.concat([x, x]))[0]
        return out.reshape(["m", 3, 1])

    expect = (X if flag else np.concatenate([X, X])).reshape(-1, 3, 1)
    check_op(op, X, np.array(flag), expect=expect, dims=[("n", 3), ()])


@pytest.mark.parametrize("rounds", [0, 1, 4])
def test_while_loop_carries_several_values(check_op: Check, rounds: int) -> None:
    def op(x: TensorValue, limit: TensorValue) -> list[TensorValue]:
        start = ops.constant(np.array(0, np.int64))
        return ops.while_loop((start, x), lambda i, _: limit > i, lambda i, total: (i + 1, total + x))

    expect = [np.array(rounds, np.int64), X + X * np.float32(rounds)]
    check_op(op, X, np.array(rounds, np.int64), expect=expect, dims=[("n", 3), ()])


def test_while_loop_over_one_value_takes_no_list(check_op: Check) -> None:
    def op(x: TensorValue) -> list[TensorValue]:
        return ops.while_loop(x, lambda i: i < 10, lambda i: i + 3)

    check_op(op, np.array(2, np.int32), expect=np.array(11, np.int32))


@pytest.mark.parametrize("flag", [True, False])
def test_loops_and_branches_nest(check_op: Check, flag: bool) -> None:
    def op(x: TensorValue, flag: TensorValue) -> list[TensorValue]:
        def grow(y: TensorValue) -> list[TensorValue]:
            return ops.cond(flag, [y.type], lambda: ops.while_loop(y, lambda z: z % 7 != 0, lambda z: z + 1), lambda: y)

        return ops.while_loop(x, lambda y: y < 20, lambda y: grow(y)[0] + 1)

    check_op(op, np.array(1, np.int32), np.array(flag), expect=np.array(22 if flag else 20, np.int32))


class Gate(Module):
    def __init__(self) -> None:
        super().__init__()
        self.wide = Linear(3, 3, DType.float32)
        self.bias = Linear(3, 3, DType.float32, has_bias=True)

    def __call__(self, x: TensorValue, flag: TensorValue) -> TensorValue:
        y = ops.cond(flag, [x.type], lambda: self.wide(x), lambda: self.bias(x) * 0.5)[0]
        return ops.tanh(ops.abs(y)) + x


class Gates(Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = Gate()
        self.second = Gate()

    def __call__(self, x: TensorValue, flag: TensorValue) -> TensorValue:
        return self.second(self.first(x, flag), flag)


def gate(state: dict[str, Any], name: str, x: Any, flag: bool) -> Any:
    wide, weight, bias = (state[f"{name}.{key}"] for key in ("wide.weight", "bias.weight", "bias.bias"))
    return np.tanh(np.abs(x @ wide.T if flag else (x @ weight.T + bias) * 0.5)) + x


@pytest.mark.parametrize("flag", [True, False])
def test_modules_with_branches_share_a_function(flag: bool) -> None:
    graph = Gates().trace(FLOATS, FLAG)
    rng = np.random.default_rng(0)
    state = {name: rng.standard_normal(spec.shape).astype(np.float32) for name, spec in graph.weight_specs.items()}
    model = to_model(graph, weights="inputs")
    assert [function.name for function in model.functions] == ["Gate"]
    expect = gate(state, "second", gate(state, "first", X, flag), flag)
    np.testing.assert_allclose(run(graph, X, flag, **state)[0], expect, rtol=1e-5, atol=1e-6)


def test_modules_whose_branches_differ_share_nothing() -> None:
    class Scaled(Module):
        def __init__(self, scale: float) -> None:
            super().__init__()
            self.scale = scale

        def __call__(self, x: TensorValue, flag: TensorValue) -> TensorValue:
            y = ops.cond(flag, [x.type], lambda: ops.exp(x) * self.scale, lambda: x)[0]
            return ops.tanh(ops.relu(y + 1)) - 1

    class Two(Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.other = Scaled(2.0), Scaled(3.0)

        def __call__(self, x: TensorValue, flag: TensorValue) -> TensorValue:
            return self.other(self.one(x, flag), flag)

    graph = Two().trace(FLOATS, FLAG)
    assert not to_model(graph).functions
    first = np.tanh(np.maximum(np.exp(X) * 2 + 1, 0)) - 1
    second = np.tanh(np.maximum(np.exp(first) * 3 + 1, 0)) - 1
    np.testing.assert_allclose(run(graph, X, True)[0], second, rtol=1e-5, atol=1e-6)


def test_a_subgraph_can_be_called_from_a_branch() -> None:
    with Graph("caller", input_types=[FLOATS, FLAG]) as graph:
        x, flag = (value.tensor for value in graph.inputs)
        square = graph.add_subgraph("square", lambda y: y * y, [TensorType(DType.float32, ["m", 3])])
        graph.output(*ops.cond(flag, [x.type], lambda: ops.call(square, x), lambda: x))
    np.testing.assert_array_equal(run(graph, X, True)[0], X * X)
    np.testing.assert_array_equal(run(graph, X, False)[0], X)


def test_what_only_a_dead_branch_uses_is_left_out() -> None:
    with Graph("dead", input_types=[FLOATS, FLAG]) as graph:
        x, flag = (value.tensor for value in graph.inputs)
        unused = ops.exp(x)
        ops.cond(flag, [x.type], lambda: unused + 1, lambda: x)
        graph.output(x + 1)
    assert [node.op_type for node in to_model(graph).graph.node] == ["Add"]


def test_a_value_cannot_leave_its_branch_by_the_back_door() -> None:
    kept: list[TensorValue] = []

    def leak(x: TensorValue) -> TensorValue:
        kept.append(x + 1)
        return kept[0]

    with Graph("leak", input_types=[FLOATS, FLAG]) as graph:
        x, flag = (value.tensor for value in graph.inputs)
        ops.cond(flag, [x.type], lambda: leak(x), lambda: x)
        with pytest.raises(ValueError, match="inside a branch or a loop body"):
            kept[0] + 1
        with pytest.raises(ValueError, match="return it from there"):
            graph.output(kept[0])


def test_a_size_made_in_a_branch_is_not_known_after_it() -> None:
    with Graph("sizes", input_types=[FLOATS, FLAG]) as graph:
        x, flag = (value.tensor for value in graph.inputs)
        ops.cond(flag, [x.type], lambda: ops.sum(x[(slice(1, None), "rest"),], 0) + x, lambda: x)
        with pytest.raises(ValueError, match="'rest' is on no input"):
            ops.shape_to_tensor(["rest"])


def test_a_branch_that_fails_leaves_the_graph_as_it_was() -> None:
    def fail() -> TensorValue:
        ops.exp(X)
        raise AssertionError("never")

    with Graph("fails", input_types=[FLOATS, FLAG]) as graph:
        x, flag = (value.tensor for value in graph.inputs)
        with pytest.raises(TypeError):
            ops.cond(flag, [x.type], fail, lambda: x)
        graph.output(x * 2)
    np.testing.assert_array_equal(run(graph, X, True)[0], X * 2)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda x, p: ops.cond(x, [x.type], lambda: x, lambda: x), "pred must be a bool without axes"),
        (lambda x, p: ops.cond(p, None, lambda: None, lambda: None), "branches that return nothing"),
        (lambda x, p: ops.cond(p, [x.type], lambda: (x, x), lambda: x), "then_branch returns 2 values, 1 are expected"),
        (lambda x, p: ops.cond(p, [x.type], lambda: x, lambda: x.max()), "else_branch returns .* at place 0"),
        (lambda x, p: ops.cond(p, [x.type], lambda: x > 0, lambda: x), "then_branch returns"),
        (lambda x, p: ops.while_loop([], lambda: p, list), "at least one iteration value"),
        (lambda x, p: ops.while_loop(x, lambda y: y > 0, lambda y: y), "predicate must be a bool without axes"),
        (lambda x, p: ops.while_loop(x, lambda y: p, lambda y: ops.concat([y, y])), "body returns"),
    ],
)
def test_what_does_not_fit_is_refused(build: Callable[..., Any], message: str) -> None:
    with Graph("wrong", input_types=[FLOATS, FLAG]) as graph:
        x, flag = (value.tensor for value in graph.inputs)
        with pytest.raises(ValueError, match=message):
            build(x, flag)
