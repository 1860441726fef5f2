"""A program over the public API; type checkers must accept it and infer what the asserts say. It is never run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, assert_type

import numpy as np

from tidemill.bundle import Bundle, StoredBundle, open_bundle
from tidemill.client import Client
from tidemill.driver import CPU, Buffer
from tidemill.dtype import DType
from tidemill.engine import InferenceSession, Model
from tidemill.graph import DeviceRef, Dim, Graph, Shape, SymbolicDim, TensorType, TensorValue, Weight, ops
from tidemill.nn import LayerList, Linear, LoadReport, Module


class Block(Module):
    """One linear layer with a residual."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.scale = Weight("scale", DType.float32, [size], DeviceRef.CPU())
        self.linear = Linear(size, size, DType.float32, has_bias=True)

    def __call__(self, x: TensorValue) -> TensorValue:
        """[..., size] -> [..., size]."""
        hidden = self.linear(x)
        assert_type(hidden, TensorValue)
        return x + ops.gelu(hidden) * self.scale


def author(size: int) -> Bundle:
    """Trace, compile and bundle."""
    blocks = LayerList([Block(size), Block(size)])
    assert_type(blocks[0], Module)
    assert_type(blocks.raw_state_dict(), dict[str, Weight])
    assert_type(blocks.load_state_dict({"0.scale": np.ones(size, np.float32)}, strict=False), LoadReport)
    kind = TensorType(DType.float32, ["batch", size])
    assert_type(kind.shape, Shape)
    assert_type(kind.shape[0] + 1, Dim)
    graph = blocks.trace(kind)
    assert_type(graph, Graph)
    assert_type(graph.inputs[0].tensor, TensorValue)
    model = blocks.compile(kind, session=InferenceSession(devices=[CPU()]))
    assert_type(model, Model)
    assert_type(model.execute(np.ones((1, size), np.float32)), list[Buffer])
    return blocks.bundle(kind, weights=Path("weights.safetensors"))


def serve(bundle: Bundle) -> StoredBundle:
    """Write and read back."""
    assert_type(bundle.write("models/block/1"), StoredBundle)
    return open_bundle("models/block/1")


def call(url: str) -> Mapping[str, Any]:
    """Ask a server."""
    with Client(url) as client:
        return client.infer("block", {"x": np.ones((1, 4), np.float32)})


assert_type(SymbolicDim("a").name, str)
