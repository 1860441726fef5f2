"""What the engine asks of a traced graph; the engine knows no more of authoring than these two protocols."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from tidemill.protocol.types import TensorSpec

__all__ = ["TracedGraph", "TracedModule"]


class TracedGraph(Protocol):
    """A graph that can be loaded."""

    @property
    def name(self) -> str:
        """The graph's name."""

    @property
    def input_specs(self) -> tuple[TensorSpec, ...]:
        """The inputs in positional order, without the weights."""

    @property
    def output_specs(self) -> tuple[TensorSpec, ...]:
        """The outputs in order."""

    @property
    def weight_specs(self) -> Mapping[str, TensorSpec]:
        """The weights that the graph uses, by full name; the spec has the name in the model."""

    @property
    def updates(self) -> Mapping[str, str]:
        """Outputs that are new contents of inputs which the graph changes: the input's name by the output's."""

    @property
    def custom_extensions(self) -> Sequence[Any]:
        """Paths of operator libraries that the graph needs."""

    def to_model_bytes(self) -> bytes:
        """An ONNX model whose graph inputs are the inputs followed by the weights, under these names."""


class TracedModule(Protocol):
    """Several graphs that share weights."""

    @property
    def graphs(self) -> Mapping[str, TracedGraph]:
        """The graphs by name."""
