"""The engine on an NVIDIA GPU; skipped where there is none."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tidemill.bundle import Bundle, GraphPart
from tidemill.bundle.stored import StoredBundle
from tidemill.driver import CPU, Accelerator, accelerator_count
from tidemill.dtype import DType
from tidemill.engine import DimRange, InferenceSession, Instance, InstanceOptions
from tidemill.errors import LoadFailed
from tidemill.graph import DeviceRef, Graph, TensorType, Weight
from tidemill.protocol.types import TensorSpec

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(accelerator_count() == 0, reason="there is no accelerator"),
]

WEIGHT = np.random.default_rng(0).standard_normal((32, 32)).astype(np.float32)
X = np.random.default_rng(1).standard_normal((4, 32)).astype(np.float32)


@pytest.fixture
def bundle(tmp_path: Path) -> StoredBundle:
    weight = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=WEIGHT.shape)
    weight.data_location = TensorProto.EXTERNAL
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 32]) for name in "xy"]
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"], "product"), helper.make_node("Tanh", ["h"], ["y"], "tanh")]
    graph = helper.make_graph(nodes, "g", infos[:1], infos[1:], [weight])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    onnx.checker.check_model(model.SerializeToString())
    x, y = (TensorSpec(name, DType.float32, ("n", 32)) for name in "xy")
    return Bundle("g", {"main": GraphPart(model, (x,), (y,))}, {"w": WEIGHT}).write(tmp_path / "1")


def test_cuda_runs_all_nodes_and_agrees_with_the_cpu(bundle: StoredBundle) -> None:
    options = InstanceOptions(("cuda",), provider_options={"cuda": {"use_tf32": False}})
    instance, host = Instance.open(bundle, options), Instance.open(bundle)

    np.testing.assert_allclose(instance.run({"x": X})["y"], host.run({"x": X})["y"], rtol=1e-4, atol=1e-5)
    assert instance.providers[0] == "CUDAExecutionProvider"
    assert instance.placement.left_over("CUDAExecutionProvider") == 0


def test_tensorrt_takes_the_declared_ranges(bundle: StoredBundle) -> None:
    options = InstanceOptions(("tensorrt", "cuda"), ranges={"n": DimRange(1, 4, 16)})
    try:
        instance = Instance.open(bundle, options)
    except LoadFailed as error:
        pytest.skip(f"TensorRT cannot be started: {error}")

    np.testing.assert_allclose(instance.run({"x": X})["y"], np.tanh(X @ WEIGHT), rtol=1e-2, atol=1e-2)


def test_a_models_weights_lie_on_the_accelerator() -> None:
    weight = Weight("w", DType.float32, [32, 32], DeviceRef.GPU())
    graph = Graph("g", lambda x: x @ weight, [TensorType(DType.float32, ["n", 32], DeviceRef.GPU())])
    model = InferenceSession(devices=[Accelerator()]).load(graph, {"w": WEIGHT})

    (y,) = model(X)

    assert y.device == CPU()
    np.testing.assert_allclose(y.to_numpy(), X @ WEIGHT, rtol=1e-2, atol=1e-2)
