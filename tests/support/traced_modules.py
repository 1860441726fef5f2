"""Small modules and graphs for the conformance cases of tracing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tidemill import nn
from tidemill.dtype import DType
from tidemill.graph import DeviceRef, Graph, TensorType, Weight

__all__ = [
    "CPU",
    "F32",
    "R2",
    "TYPES",
    "Linear",
    "P",
    "R",
    "Stack",
    "built",
    "in_graph",
    "out_types",
    "returned",
    "subgraph_of",
    "tensor",
    "types",
]

CPU = DeviceRef.CPU()
F32 = DType.float32
TYPES = {
    "f16": DType.float16,
    "f32": F32,
    "f64": DType.float64,
    "i8": DType.int8,
    "i32": DType.int32,
    "i64": DType.int64,
    "u8": DType.uint8,
    "bool": DType.bool,
}


def tensor(*shape: Any, dtype: DType = F32) -> TensorType:
    return TensorType(dtype, shape, CPU)


class Linear(nn.Module):
    def __init__(self, size: int = 4, name: str = "weight") -> None:
        super().__init__()
        self.weight = Weight(name, F32, (size, size), CPU)

    def __call__(self, x: Any) -> Any:
        return x @ self.weight.T


class R(nn.Module):
    """Returns what a function makes of its input."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def __call__(self, x: Any) -> Any:
        return self.function(x)


class R2(nn.Module):
    def __call__(self, x: Any, y: Any) -> Any:
        return x


class P(nn.Module):
    def __call__(self, x: Any) -> Any:
        return x


class Stack(nn.Module):
    def __init__(self, count: int = 3) -> None:
        super().__init__()
        self.layers = nn.LayerList([Linear() for _ in range(count)])

    def __call__(self, x: Any) -> Any:
        return self.layers(x)


def types(*values: Any) -> list[str]:
    return [repr(value) for value in values]


def out_types(function: Callable[..., Any], *inputs: TensorType) -> list[str]:
    graph = Graph("g", function, inputs)
    return types(*graph.output_types)


def returned(function: Callable[[Any], Any]) -> list[str]:
    return types(*R(function).trace(tensor(1)).output_types)


def in_graph(run: Callable[[Graph, Any], Any], *shape: Any) -> Any:
    with Graph("g", input_types=[tensor(*(shape or (2, 4)))]) as graph:
        return run(graph, graph.inputs[0].tensor)


def subgraph_of(graph: Graph, layer: nn.Module, x: Any, name: str = "a", prefix: str = "layers.0.") -> Graph:
    return layer.build_subgraph(name, [x], weight_prefix=prefix)


def built(run: Callable[[Graph, Any], Any], *shape: Any) -> Any:
    """Run with a subgraph over a layer whose weight is called layers.0.weight."""
    return in_graph(lambda g, x: run(subgraph_of(g, Linear(name="layers.0.weight"), x), x), *shape)
