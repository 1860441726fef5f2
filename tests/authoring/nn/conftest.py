"""A layer with random weights, traced, exported, checked and run."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto

from tidemill.dtype import DType
from tidemill.engine.session import SessionOptions, open_session
from tidemill.graph import Dim, Graph, SymbolicDim, TensorType
from tidemill.graph.check import check_model
from tidemill.graph.export import to_model
from tidemill.nn import Module
from tidemill.protocol import Array

Call = Callable[..., Any]


@dataclass(frozen=True)
class Run:
    """What came out, and what it was made with."""

    outputs: list[Array]
    weights: dict[str, Array]
    graph: Graph
    model: ModelProto

    @property
    def output(self) -> Array:
        (only,) = self.outputs
        return only


class Root(Module):
    """Calls a layer the way a test wants it called."""

    def __init__(self, layer: Module, call: Call) -> None:
        super().__init__()
        self.layer = layer
        self.call = call

    def __call__(self, *values: Any) -> Any:
        return self.call(self.layer, *values)


def random_weights(layer: Module) -> dict[str, Array]:
    """Values for every weight, the same for the same name and shape; variances are positive."""
    weights = {}
    for name, weight in layer.raw_state_dict().items():
        rng = np.random.default_rng(zlib.crc32(name.encode()))
        value = rng.standard_normal(weight.shape.static_dims) * 0.5
        weights[name] = (np.abs(value) + 0.5 if "var" in name else value).astype(weight.dtype.to_numpy())
    return weights


def run_layer(
    layer: Module,
    *inputs: Any,
    dims: Sequence[Sequence[int | str]] | None = None,
    weights: Mapping[str, Array] | None = None,
    call: Call | None = None,
) -> Run:
    arrays = [np.asarray(array) for array in inputs]
    values = dict(weights) if weights is not None else random_weights(layer)
    layer.load_state_dict(values)
    root, prefix = (layer, "") if call is None else (Root(layer, call), "layer.")
    shapes: Sequence[Sequence[int | str]] = dims if dims is not None else [array.shape for array in arrays]
    types = [TensorType(DType.from_numpy(one.dtype), shape) for one, shape in zip(arrays, shapes, strict=True)]
    graph = root.trace(*types)
    model = to_model(graph, weights="inputs")
    check_model(model)
    feed = {spec.name: array for spec, array in zip(graph.input_specs, arrays, strict=True)}
    feed |= {spec.name: values[name.removeprefix(prefix)] for name, spec in graph.weight_specs.items()}
    results = open_session(model.SerializeToString(), SessionOptions(threads=1)).run(feed)
    outputs = [results[info.name] for info in model.graph.output]
    sizes = {
        dim: Dim(size)
        for spec, array in zip(graph.input_specs, arrays, strict=True)
        for dim, size in zip(spec.shape, array.shape, strict=True)
        if isinstance(dim, str)
    }
    for inferred, array in zip(graph.output_types, outputs, strict=True):
        shape = inferred.shape.substitute(sizes)
        assert not any(isinstance(dim, SymbolicDim) for dim in shape), f"a dim of {inferred} is not known"
        assert (inferred.dtype, list(shape)) == (DType.from_numpy(array.dtype), list(array.shape))
    return Run(outputs, values, graph, model)


@pytest.fixture(scope="session")
def run() -> Callable[..., Run]:
    """`run(layer, *arrays, dims=None, weights=None, call=None)`: see `Run` for what comes back.

    The layer gets random weights unless some are given. It is traced over inputs of the arrays' types (or `dims`),
    exported, checked by onnx and run by ONNX Runtime; inferred dtypes and shapes must be the real ones. `call(layer,
    *values)` replaces the plain call.
    """
    return run_layer
