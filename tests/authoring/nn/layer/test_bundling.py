"""Modules packed for serving: several graphs, renamed and converted weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tidemill import nn
from tidemill.bundle import Bundle
from tidemill.dtype import DType
from tidemill.engine.session import SessionOptions, open_session
from tidemill.graph import DeviceRef, Module, TensorType, Weight
from tidemill.weights import open_safetensors, write_safetensors

CPU = DeviceRef.CPU()


class Layer(nn.Module):
    def __init__(self, dtype: DType = DType.float32, name: str = "weight") -> None:
        super().__init__()
        self.weight = Weight(name, dtype, (3, 3), CPU)

    def __call__(self, x: Any) -> Any:
        return x @ self.weight.T


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.LayerList([Layer(), Layer()])

    def __call__(self, x: Any) -> Any:
        return self.layers(x)


def run(path: Path, x: Any) -> Any:
    return open_session(path, SessionOptions(threads=1)).run({"x": x})["output"]


def kind(*shape: Any, dtype: DType = DType.float32) -> TensorType:
    return TensorType(dtype, shape, CPU)


def test_several_graphs_lie_over_one_file(tmp_path: Path) -> None:
    module, net = Module(), Net()
    net.trace(kind("n", 3), name="main", module=module)
    net.layers[0].trace(kind("n", 3), name="first", module=module)
    weights = {f"layers.{place}.weight": np.eye(3, dtype=np.float32) * (place + 2) for place in range(2)}
    stored = nn.bundle_graphs(module, {**weights, "weight": weights["layers.0.weight"]}, name="net").write(
        tmp_path / "net"
    )
    assert sorted(path.name for path in stored.path.iterdir()) == [
        "bundle.json",
        "first.onnx",
        "model.onnx",
        "weights.safetensors",
    ]
    x = np.ones((1, 3), np.float32)
    assert run(stored.path / "model.onnx", x)[0, 0] == 6
    assert run(stored.path / "first.onnx", x)[0, 0] == 2


def test_patterns_rename_many_weights(tmp_path: Path) -> None:
    file = tmp_path / "published.safetensors"
    write_safetensors(file, {f"model.blk.{place}.w": np.eye(3, dtype=np.float32) for place in range(2)})
    bundle = Net().bundle(kind("n", 3), weights=file, rename={"layers.*.weight": "model.blk.*.w"})
    stored = bundle.write(tmp_path / "net")
    x = np.arange(3, dtype=np.float32)[None]
    np.testing.assert_array_equal(run(stored.graph_path, x), x)


def test_a_weight_that_is_named_like_an_input_is_found(tmp_path: Path) -> None:
    class Named(Layer):
        def __init__(self) -> None:
            super().__init__(name="x")

    values = {"x": np.eye(3, dtype=np.float32) * 2}
    stored = Named().bundle(kind("n", 3), weights=values).write(tmp_path / "named")
    x = np.ones((1, 3), np.float32)
    np.testing.assert_array_equal(run(stored.graph_path, x), x * 2)


def test_a_dtype_is_converted_only_when_asked_for(tmp_path: Path) -> None:
    file = tmp_path / "single.safetensors"
    write_safetensors(file, {"weight": np.full((3, 3), 0.5, np.float32)})
    half = Layer(DType.float16)
    with pytest.raises(ValueError, match="float32"):
        half.bundle(kind("n", 3, dtype=DType.float16), weights=file).write(tmp_path / "refused")
    bundle = half.bundle(kind("n", 3, dtype=DType.float16), weights=file, dtype="float16")
    stored = bundle.write(tmp_path / "half")
    assert open_safetensors(stored.path / "weights.safetensors")["weight"].dtype == np.float16


def test_values_that_were_loaded_are_packed(tmp_path: Path) -> None:
    layer = Layer()
    layer.load_state_dict({"weight": np.eye(3, dtype=np.float32) * 3})
    bundle = layer.bundle(kind("n", 3), name="layer")
    assert isinstance(bundle, Bundle)
    assert bundle.source.endswith("test_bundling.Layer")
    x = np.ones((1, 3), np.float32)
    np.testing.assert_array_equal(run(bundle.write(tmp_path / "l").graph_path, x), x * 3)
