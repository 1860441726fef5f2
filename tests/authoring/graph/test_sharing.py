"""Which modules share a function, and that the shared graph computes what the flat one does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tidemill import nn
from tidemill.dtype import DType
from tidemill.engine import InferenceSession
from tidemill.engine.session import SessionOptions, open_session
from tidemill.graph import DeviceRef, Graph, TensorType, Weight, ops
from tidemill.graph.check import check_model
from tidemill.graph.export import to_model
from tidemill.graph.plan import make_plan

F32 = DType.float32
CPU = DeviceRef.CPU()


class Block(nn.Module):
    """Enough nodes to be worth a function."""

    def __init__(self, size: int = 4, scale: float = 1.0, dtype: DType = F32, axis: int = -1) -> None:
        super().__init__()
        self.a = nn.Linear(size, size, dtype, has_bias=True)
        self.b = nn.Linear(size, size, dtype)
        self.scale, self.axis = scale, axis

    def __call__(self, x: Any) -> Any:
        return ops.softmax(ops.relu(self.a(x)) * self.scale + self.b(x), self.axis) + x


class Stack(nn.Module):
    def __init__(self, *blocks: nn.Module) -> None:
        super().__init__()
        self.blocks = nn.LayerList(blocks)

    def __call__(self, x: Any) -> Any:
        for block in self.blocks:
            x = block(x)
        return x


class Wrapped(nn.Module):
    """Does nothing but call another module."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = Block()

    def __call__(self, x: Any) -> Any:
        return self.inner(x)


class Outer(nn.Module):
    """Two blocks and something around them."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = Block(), Block()

    def __call__(self, x: Any) -> Any:
        return ops.tanh(self.second(ops.sigmoid(self.first(x)))) * 0.5


class Other(nn.Module):
    """Another use of a block."""

    def __init__(self) -> None:
        super().__init__()
        self.block = Block()

    def __call__(self, x: Any) -> Any:
        return ops.exp(self.block(x)) - 1.0


def traced(module: nn.Module, *shape: Any, dtype: DType = F32) -> Graph:
    return module.trace(TensorType(dtype, shape or ("batch", 4), CPU))


def calls(graph: Graph) -> dict[str, int]:
    return {name: function.calls for name, function in graph.functions.items()}


def check_equal(module: nn.Module, *shape: int) -> None:
    """The model with functions and the flat one give the same, and both are valid."""
    graph = traced(module, "batch", *shape[1:])
    random = np.random.default_rng(0)
    feed = {"x": random.standard_normal(shape, np.float32)}
    for name, weight in module.raw_state_dict().items():
        feed[name] = random.standard_normal([int(dim) for dim in weight.shape], np.float32)
    results = []
    for dedup in ("auto", "off"):
        model = to_model(graph, weights="inputs", dedup=dedup)
        check_model(model)
        results.append(open_session(model.SerializeToString(), SessionOptions(threads=1)).run(feed)["output"])
    np.testing.assert_array_equal(results[0], results[1])


SHARED: dict[str, tuple[Callable[[], nn.Module], dict[str, int]]] = {
    "equal blocks": (lambda: Stack(Block(), Block(), Block()), {"Block": 3}),
    "a lone block": (lambda: Stack(Block()), {}),
    "differing constants": (lambda: Stack(Block(), Block(scale=2.0)), {}),
    "two kinds, two functions": (
        lambda: Stack(Block(), Block(scale=2.0), Block(), Block(scale=2.0)),
        {"Block": 2, "Block_1": 2},
    ),
    "differing attributes": (lambda: Stack(Block(), Block(axis=0)), {}),
    "a wrapper counts once": (lambda: Stack(Wrapped(), Wrapped()), {"Wrapped": 2}),
    "blocks within blocks": (lambda: Stack(Outer(), Outer()), {"Block": 2, "Outer": 2}),
    "across different blocks": (lambda: Stack(Outer(), Other()), {"Block": 3}),
    "small modules stay": (lambda: Stack(*[nn.Linear(4, 4, F32) for _ in range(3)]), {}),
    "200 layers, one function": (lambda: Stack(*[Block() for _ in range(200)]), {"Block": 200}),
}


@pytest.mark.parametrize("case", SHARED)
def test_equal_bodies_share_a_function(case: str) -> None:
    make, expected = SHARED[case]
    assert calls(traced(make())) == expected


@pytest.mark.parametrize("case", [case for case in SHARED if "200" not in case])
def test_sharing_changes_no_value(case: str) -> None:
    check_equal(SHARED[case][0](), 3, 4)


def test_differing_sizes_are_differing_weights() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.small, self.large = Block(4), Block(8)

        def __call__(self, x: Any) -> Any:
            return ops.concat([self.small(x[:, :4]), self.large(x)], axis=1)

    assert calls(traced(Two(), "batch", 8)) == {}


def test_differing_dtypes_stay_apart() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.single, self.double = Block(), Block(dtype=DType.float64)

        def __call__(self, x: Any) -> Any:
            return self.double(self.single(x).cast(DType.float64))

    assert calls(traced(Two())) == {}


def test_a_tied_weight_keeps_a_module_apart() -> None:
    """Within the tied block both products take one weight, in the other two: the wiring differs."""
    plain, tied = Block(), Block()
    tied.b.set_shared_weight("weight", tied.a.weight)
    assert calls(traced(Stack(plain, tied))) == {}


def test_a_weight_shared_between_blocks_is_an_argument() -> None:
    first, second = Block(), Block()
    second.a.set_shared_weight("weight", first.a.weight)
    stack = Stack(first, second)
    assert calls(traced(stack)) == {"Block": 2}
    check_equal(stack, 2, 4)


def test_a_module_that_is_called_twice_is_a_function() -> None:
    block = Block()

    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.block = block

        def __call__(self, x: Any) -> Any:
            return self.block(self.block(x)) + self.block(x)

    assert calls(traced(Twice())) == {"Block": 3}
    check_equal(Twice(), 2, 4)


def test_a_hook_that_adds_operators_keeps_its_module_apart() -> None:
    stack = Stack(Block(), Block(), Block())
    marked = stack.blocks[1]

    def hook(layer: Any, args: Any, kwargs: Any, outputs: Any) -> Any:
        return outputs * 2.0 if layer is marked.a else None

    nn.add_layer_hook(hook)
    try:
        assert calls(traced(stack)) == {"Block": 2}
    finally:
        nn.clear_hooks()


def test_small_constants_are_in_the_body_and_large_ones_are_arguments() -> None:
    class Biased(nn.Module):
        def __init__(self, value: float, size: int) -> None:
            super().__init__()
            self.block = Block(size)
            self.value = np.full(size, value, np.float32)

        def __call__(self, x: Any) -> Any:
            return self.block(x) + self.value

    small = Stack(Biased(1, 4), Biased(1, 4))
    large = Stack(Biased(1, 512), Biased(2, 512))
    assert calls(traced(small)) == {"Biased": 2}
    assert calls(traced(large, "batch", 512)) == {"Biased": 2}
    check_equal(large, 2, 512)
    function = to_model(traced(large, "batch", 512)).functions[0]
    assert [node.op_type for node in function.node if node.op_type == "Constant"] == ["Constant"]


def test_several_outputs_and_inputs_of_a_block() -> None:
    class Cell(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.block = Block()

        def __call__(self, x: Any, state: Any) -> Any:
            new = self.block(x) + state
            return ops.tanh(new), new

    class Chain(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cells = nn.LayerList([Cell(), Cell(), Cell()])

        def __call__(self, x: Any) -> Any:
            state = x * 0.5
            for cell in self.cells:
                x, state = cell(x, state)
            return x + state

    assert calls(traced(Chain())) == {"Cell": 3}
    check_equal(Chain(), 2, 4)


def test_names_inside_are_those_of_the_module() -> None:
    model = to_model(traced(Stack(Block(), Block())))
    (function,) = model.functions
    assert list(function.input) == ["x", "a.weight", "a.bias", "b.weight"]
    assert [node.name for node in function.node if node.op_type == "Gemm"] == ["a.Gemm", "b.Gemm"]
    assert [node.name for node in model.graph.node] == ["blocks.0", "blocks.1"]


def test_dedup_off_writes_everything_out() -> None:
    graph = traced(Stack(Block(), Block()))
    assert not to_model(graph, dedup="off").functions
    with pytest.raises(ValueError, match="dedup 'auto' or 'off'"):
        to_model(graph, dedup="on")


def test_equal_names_of_different_classes_are_different_functions() -> None:
    """B23: two classes called Block; the same class with another attribute; the same code in another dtype."""
    here = Block

    def local() -> type[nn.Module]:
        class Block(here):
            def __call__(self, x: Any) -> Any:
                return ops.sigmoid(super().__call__(x))

        return Block

    there = local()
    graph = traced(Stack(Block(), there(), Block(), there()))
    # The local class calls the other's code, which is the same function within its own.
    assert calls(graph) == {"Block": 3, "Block_1": 2}
    names = [function.name for function in to_model(graph).functions]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("name", ["t", "x", "output", "a.b/c", "a_b_c", "a.b_c", "main", "Gemm", "gemm"])
def test_a_weight_may_have_any_name(name: str) -> None:
    """B23: names that collide with inputs, outputs, operators or each other after naive mangling."""

    class Named(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            for place, one in enumerate((name, "a.b/c_", "a_b_c_")):
                setattr(self, f"w{place}", Weight(one, F32, (4, 4), CPU))

        def __call__(self, x: Any) -> Any:
            return ((x @ self.w0.T) @ self.w1.T) @ self.w2.T

    module = Named()
    random = np.random.default_rng(0)
    values = {key: random.standard_normal((4, 4), np.float32) for key in module.raw_state_dict()}
    x = expected = random.standard_normal((2, 4), np.float32)
    for value in values.values():
        expected = expected @ value.T
    graph = module.trace(TensorType(F32, ["batch", 4], CPU), name="main")
    check_model(to_model(graph, weights="inputs"))
    model = InferenceSession(num_threads=1).load(graph, weights_registry=values)
    np.testing.assert_allclose(model(x)[0].to_numpy(), expected, rtol=1e-4)


def test_sharing_leaves_the_traced_body_alone() -> None:
    graph = traced(Stack(Block(), Block()))
    before = list(graph.body.nodes)
    for _ in range(2):
        make_plan(graph.body, dedup="auto")
    assert graph.body.nodes == before
