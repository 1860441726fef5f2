"""Values stay with their weights, whoever loaded them, and lists of modules with what else they hold."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tidemill import nn
from tidemill.dtype import DType
from tidemill.engine import InferenceSession
from tidemill.graph import DeviceRef, Graph, TensorType, Weight, ops

CPU = DeviceRef.CPU()


class Layer(nn.Module):
    def __init__(self, name: str = "weight") -> None:
        super().__init__()
        self.weight = Weight(name, DType.float32, (2, 2), CPU)

    def __call__(self, x: Any) -> Any:
        return x @ self.weight.T


class Outer(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def __call__(self, x: Any) -> Any:
        return self.inner(x)


def test_values_loaded_into_a_child_are_the_parents() -> None:
    inner = Layer()
    inner.load_state_dict({"weight": np.eye(2, dtype=np.float32)})
    model = Outer(inner).compile(TensorType(DType.float32, ["b", 2], CPU), session=InferenceSession(num_threads=1))
    np.testing.assert_array_equal(model(np.ones((1, 2), np.float32))[0].to_numpy(), 1)


def test_values_loaded_into_a_parent_are_the_childs() -> None:
    outer = Outer(Layer())
    outer.load_state_dict({"inner.weight": np.eye(2, dtype=np.float32)})
    np.testing.assert_array_equal(outer.inner.state_dict()["weight"], np.eye(2))


def test_a_weight_keeps_its_local_name() -> None:
    outer = Outer(Layer())
    values = outer.state_dict()
    outer.inner.weight = outer.inner.weight
    assert list(outer.raw_state_dict()) == ["inner.weight"]
    outer.load_state_dict(values)


def test_a_shared_weight_takes_no_others_place() -> None:
    layer, other = Layer("c"), Layer("c")
    layer.more = Weight("d", DType.float32, (2, 2), CPU)
    with pytest.raises(ValueError, match="Layer already has a weight named 'd'"):
        layer.set_shared_weight("d", other.weight)
    assert list(layer.raw_state_dict()) == ["c", "d"]


def test_a_refused_weight_changes_nothing() -> None:
    layer = Layer()
    layer.other = Weight("other", DType.float32, (1,), CPU)
    with pytest.raises(ValueError, match="already has a weight named 'weight'"):
        layer.other = Weight("weight", DType.float32, (1,), CPU)
    assert list(layer.raw_state_dict()) == ["weight", "other"]


def test_setting_a_shape_drops_the_value() -> None:
    layer = Layer()
    layer.state_dict()
    layer.weight.shape = (3, 3)
    assert list(layer.state_dict()["weight"].shape) == [3, 3]


def test_a_list_of_modules_may_hold_another() -> None:
    class Stack(nn.LayerList):
        def __init__(self) -> None:
            super().__init__([Layer(), Layer()])
            self.norm = Layer()

    stack = Stack()
    stack.append(Layer())
    assert (len(stack), list(stack.raw_state_dict())) == (3, ["0.weight", "1.weight", "norm.weight", "2.weight"])
    del stack[0]
    assert (len(stack), sorted(stack.raw_state_dict())) == (2, ["0.weight", "1.weight", "norm.weight"])


def test_a_wrong_prefix_over_many_names_is_told_at_once() -> None:
    layers = nn.LayerList([Layer() for _ in range(800)])
    values = {f"model.{name}": np.eye(2, dtype=np.float32) for name in layers.raw_state_dict()}
    with pytest.raises(ValueError, match=r"did you mean 'model\.\d+\.weight'"):
        layers.load_state_dict(values)


def test_other_byte_orders_are_turned() -> None:
    layer = Layer()
    layer.load_state_dict({"weight": np.eye(2, dtype=">f4")})
    value = layer.state_dict()["weight"]
    assert value.dtype.isnative
    np.testing.assert_array_equal(value, np.eye(2))


def test_an_inner_subgraph_without_a_prefix_follows_the_outer_one() -> None:
    class Inner(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attn = Layer()
            self.scale = Weight("scale", DType.float32, (2,), CPU)

        def __call__(self, x: Any) -> Any:
            sub = self.attn.build_subgraph(f"attn_{len(Graph.current.subgraphs)}", [x])
            return ops.call(sub, x)[0] * self.scale

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.LayerList([Inner(), Inner()])

        def __call__(self, x: Any) -> Any:
            sub = self.layers[0].build_subgraph("layer", [x], weight_prefix="layers.0.")
            for place in range(2):
                x = ops.call(sub, x, prefix=f"layers.{place}.")[0]
            return x

    graph = Net().trace(TensorType(DType.float32, ["b", 2], CPU))
    assert sorted(graph.weight_specs) == [
        "layers.0.attn.weight",
        "layers.0.scale",
        "layers.1.attn.weight",
        "layers.1.scale",
    ]
