"""Graphs: types, symbolic values, weights and the operators over them."""

from tidemill.graph import ops
from tidemill.graph.dim import AlgebraicDim, Dim, DimLike, StaticDim, SymbolicDim
from tidemill.graph.graph import Graph
from tidemill.graph.shape import Shape, ShapeLike
from tidemill.graph.type import DeviceRef, TensorType, Type
from tidemill.graph.value import TensorValue, Value
from tidemill.graph.weight import Weight

__all__ = [
    "AlgebraicDim",
    "DeviceRef",
    "Dim",
    "DimLike",
    "Graph",
    "Shape",
    "ShapeLike",
    "StaticDim",
    "SymbolicDim",
    "TensorType",
    "TensorValue",
    "Type",
    "Value",
    "Weight",
    "ops",
]
