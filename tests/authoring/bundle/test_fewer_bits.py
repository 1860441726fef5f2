"""Weights leave and enter graphs unchanged, and lose no more in fewer bits than their format says."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper, numpy_helper

from tidemill.bundle import Bundle, GraphPart
from tidemill.bundle.embedded import load_flat, split_weights
from tidemill.bundle.half import store_as
from tidemill.bundle.int4 import quantize_blocks, use_int4_blocks
from tidemill.dtype import DType
from tidemill.errors import InvalidBundle
from tidemill.protocol.types import TensorSpec

RNG = np.random.default_rng(0)
WEIGHT = RNG.standard_normal((40, 24)).astype(np.float32)
BIAS = RNG.standard_normal(24).astype(np.float32)
TYPES = [np.float32, np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e5m2, np.int8, np.uint8, np.int64, np.bool_]


def model_of(nodes, **weights) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", 1, ["n", 40])],
        [helper.make_tensor_value_info("y", 1, ["n", 24])],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def linear() -> onnx.ModelProto:
    nodes = [helper.make_node("MatMul", ["x", "w"], ["p"], "product"), helper.make_node("Add", ["p", "b"], ["y"])]
    return model_of(nodes, w=WEIGHT, b=BIAS)


@pytest.mark.parametrize("dtype", TYPES)
def test_weights_of_every_type_are_taken_out(dtype):
    large, small = np.arange(2048).astype(dtype), np.arange(4).astype(dtype)
    model = model_of([helper.make_node("Identity", ["x"], ["y"])], large=large, small=small)

    weights = split_weights(model)

    assert list(weights) == ["large"]
    assert weights["large"].dtype == large.dtype
    np.testing.assert_array_equal(weights["large"], large)
    left = {tensor.name: tensor for tensor in model.graph.initializer}
    assert (list(left["large"].dims), left["large"].data_location) == ([2048], onnx.TensorProto.EXTERNAL)
    np.testing.assert_array_equal(numpy_helper.to_array(left["small"]), small)


@pytest.fixture
def bundle(tmp_path):
    model = linear()
    weights = split_weights(model)
    specs = TensorSpec("x", DType.float32, ("n", 40)), TensorSpec("y", DType.float32, ("n", 24))
    return Bundle("linear", {"main": GraphPart(model, (specs[0],), (specs[1],))}, weights).write(tmp_path / "1")


def test_a_bundles_weights_are_read_into_its_graph(bundle):
    model = load_flat(bundle, "model.onnx")

    arrays = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    np.testing.assert_array_equal(arrays["w"], WEIGHT)
    onnx.checker.check_model(model, full_check=True)


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        ("offset", "-8", "weight 'w' is said to be bytes -8 to"),
        ("length", str(1 << 40), "weight 'w' is said to be bytes"),
        ("location", "../weights.safetensors", "leads out of the bundle's folder"),
        ("location", "other.bin", "other.bin belongs to the bundle and is missing"),
    ],
)
def test_ranges_outside_of_the_files_are_refused(bundle, key, value, text):
    model = onnx.load(bundle.graph_path, load_external_data=False)
    for tensor in model.graph.initializer:
        for entry in tensor.external_data:
            entry.value = value if entry.key == key else entry.value
    bundle.graph_path.write_bytes(model.SerializeToString())

    with pytest.raises(InvalidBundle, match=text):
        load_flat(bundle, "model.onnx")


@pytest.mark.parametrize(("dtype", "error"), [(DType.float16, 2**-11), (DType.bfloat16, 2**-8)])
def test_half_storage_rounds_once(dtype, error):
    model = linear()

    assert store_as(model, dtype) == 1
    onnx.checker.check_model(model, full_check=True)
    stored = numpy_helper.to_array(model.graph.initializer[0])
    assert (model.graph.initializer[0].name, stored.dtype) == (f"w.{dtype.name}", dtype.to_numpy())
    np.testing.assert_allclose(stored.astype(np.float32), WEIGHT, rtol=error, atol=1e-7)
    assert [node.op_type for node in model.graph.node] == ["Cast", "MatMul", "Add"]


@settings(max_examples=50, deadline=None)
@given(rows=st.integers(1, 5), width=st.integers(1, 100), block=st.sampled_from([16, 32]), seed=st.integers(0, 99))
def test_blocks_are_near_and_keep_zero(rows, width, block, seed):
    rng = np.random.default_rng(seed)
    weight = rng.standard_normal((rows, width)).astype(np.float32) + rng.choice([-3, 0, 3])
    weight[:, rng.integers(width)] = 0

    widened, scales = widen(*quantize_blocks(weight, block), weight.shape, block)

    assert (np.abs(widened - weight) <= scales / 2 * 1.001 + 1e-6).all()
    np.testing.assert_array_equal(widened[weight == 0], 0)


def widen(values, scales, zeros, shape, block):
    """The matrix that 4-bit blocks stand for, and the scale of each element."""
    rows, width = shape
    blocks = -(-width // block)
    levels = np.stack([values & 15, values >> 4], -1).reshape(rows, blocks, block).astype(np.int32)
    points = np.stack([zeros & 15, zeros >> 4], -1).reshape(rows, -1)[:, :blocks, None].astype(np.int32)
    scale = np.broadcast_to(scales.reshape(rows, blocks, 1), levels.shape).reshape(rows, -1)[:, :width]
    return ((levels - points) * scales.reshape(rows, blocks, 1)).reshape(rows, -1)[:, :width], scale


PRODUCTS = {
    "MatMul": ([helper.make_node("MatMul", ["x", "w"], ["y"], "p")], WEIGHT),
    "Gemm": ([helper.make_node("Gemm", ["x", "w", "b"], ["y"], "p")], WEIGHT),
    "Gemm transposed": (
        [helper.make_node("Gemm", ["x", "w", "b"], ["y"], "p", transB=1)],
        np.ascontiguousarray(WEIGHT.T),
    ),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_products_with_blocks_run_and_are_near(name):
    ort = pytest.importorskip("onnxruntime")
    nodes, weight = PRODUCTS[name]
    model = model_of(nodes, w=weight, b=BIAS)
    x = RNG.standard_normal((3, 40)).astype(np.float32)
    expected = x @ WEIGHT + (BIAS if "Gemm" in name else 0)

    assert use_int4_blocks(model) == 1

    assert "w" not in [tensor.name for tensor in model.graph.initializer]
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (given_,) = session.run(None, {"x": x})
    assert np.linalg.norm(given_ - expected) < 0.15 * np.linalg.norm(expected)


@pytest.mark.parametrize(
    "node",
    [
        helper.make_node("Gemm", ["x", "w"], ["y"], "p", alpha=0.5),
        helper.make_node("MatMul", ["w", "x"], ["y"], "p"),
        helper.make_node("Add", ["x", "w"], ["y"], "p"),
    ],
)
def test_other_uses_of_a_matrix_stay(node):
    model = model_of([node], w=WEIGHT)

    assert use_int4_blocks(model) == 0
    assert [tensor.name for tensor in model.graph.initializer] == ["w"]


def test_a_matrix_that_is_used_otherwise_too_is_kept():
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["p"], "first"),
        helper.make_node("MatMul", ["x", "w"], ["q"], "second"),
        helper.make_node("Add", ["p", "q"], ["y"]),
        helper.make_node("ReduceMean", ["w"], ["unused"]),
    ]
    model = model_of(nodes, w=WEIGHT)

    assert use_int4_blocks(model) == 2
    assert len(model.graph.initializer) == 4
