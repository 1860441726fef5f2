"""From traced graphs to a bundle: their ONNX models, and how their weights' names lead to a checkpoint's."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from typing import Any, TypeAlias

from tidemill.bundle import Bundle, GraphPart
from tidemill.dtype import DType
from tidemill.graph.graph import Graph
from tidemill.graph.module import Module as GraphModule
from tidemill.weights.rename import key_of

__all__ = ["WeightValues", "bundle_graphs", "graph_parts", "model_renames"]

WeightValues: TypeAlias = str | PathLike[str] | Mapping[str, Any]
"""A checkpoint's path or URL, or arrays by full name."""


def bundle_graphs(
    module: GraphModule,
    weights: WeightValues,
    *,
    name: str,
    rename: Mapping[str, str] | None = None,
    dtype: DType | str | None = None,
) -> Bundle:
    """Pack several graphs over one set of weights.

    Args:
        module: What the graphs were traced into. The one named "main" is what a server answers with.
        weights: A checkpoint's path or URL, or arrays by full name.
        name: The model's name.
        rename: Full weight name to the key in the checkpoint, where the two differ; patterns as in
            `tidemill.weights.rename`.
        dtype: What floats of the checkpoint are converted to where the graphs declare it; None never converts.

    Raises:
        ValueError: There is no graph, or one returns nothing.
    """
    graphs = module.graphs
    return Bundle(name, graph_parts(graphs), weights, rename=model_renames(graphs, rename or {}), dtype=dtype)


def graph_parts(graphs: Mapping[str, Graph]) -> dict[str, GraphPart]:
    """Graphs as the parts of a bundle; ValueError if one returns nothing."""
    from tidemill.graph.export import to_model  # onnx is slow to import and not needed for tracing

    for graph in graphs.values():
        if not graph.body.outputs:
            raise ValueError(f"graph {graph.name!r} returns nothing, so there is nothing to serve")
    return {key: GraphPart(to_model(graph), graph.input_specs, graph.output_specs) for key, graph in graphs.items()}


def model_renames(graphs: Mapping[str, Graph], rename: Mapping[str, str]) -> dict[str, str]:
    """The rules for the names that weights have in the models, which differ where an input or output has the name."""
    renamed = {
        spec.name: key_of(rename, name)
        for graph in graphs.values()
        for name, spec in graph.weight_specs.items()
        if spec.name != name
    }
    return {**renamed, **rename}
