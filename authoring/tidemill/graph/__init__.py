"""Graphs: types, symbolic values, weights and the operators over them."""

from tidemill.graph import ops
from tidemill.graph.buffer_value import BufferValue
from tidemill.graph.dim import AlgebraicDim, Dim, DimLike, StaticDim, SymbolicDim
from tidemill.graph.graph import Graph
from tidemill.graph.layout import ConvInputLayout, FilterLayout
from tidemill.graph.module import Module
from tidemill.graph.quantization import BlockParameters, QuantizationConfig, QuantizationEncoding
from tidemill.graph.shape import Shape, ShapeLike
from tidemill.graph.type import BufferType, DeviceRef, TensorType, Type
from tidemill.graph.value import TensorValue, Value
from tidemill.graph.weight import Weight

__all__ = [
    "AlgebraicDim",
    "BlockParameters",
    "BufferType",
    "BufferValue",
    "ConvInputLayout",
    "DeviceRef",
    "Dim",
    "DimLike",
    "FilterLayout",
    "Graph",
    "Module",
    "QuantizationConfig",
    "QuantizationEncoding",
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
