"""Fewer bits are measured against the original, and refused when they cost too much."""

from __future__ import annotations

import json

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tidemill.bundle import Bundle, GraphPart, open_bundle
from tidemill.bundle.embedded import load_flat, split_weights
from tidemill.dtype import DType
from tidemill.engine import Instance, InstanceOptions, QuantizeOptions, quantize_bundle
from tidemill.engine.precision import compare
from tidemill.errors import ConfigError, InvalidArgument, PrecisionLost
from tidemill.protocol.types import TensorSpec

X = np.random.default_rng(1).standard_normal((4, 32)).astype(np.float32)
OPERATORS = {"int8-dynamic": "MatMulInteger", "int4-blockwise": "MatMulNBits", "float16": "Cast", "bfloat16": "Cast"}


@pytest.mark.parametrize("kind", OPERATORS)
def test_every_kind_gives_a_bundle_like_any_other(stack, tmp_path, kind):
    report = quantize_bundle(stack, tmp_path / kind / "1", QuantizeOptions(kind, max_error=0.9))
    bundle = open_bundle(tmp_path / kind / "1")

    bundle.verify()
    graph = onnx.load(bundle.graph_path, load_external_data=False)
    assert OPERATORS[kind] in [node.op_type for node in graph.graph.node]
    assert (bundle.inputs, bundle.outputs, bundle.name) == (stack.inputs, stack.outputs, "stack")
    assert report.bytes_after < report.bytes_before
    assert 0 < report.worst < 0.5
    assert bundle.manifest.created_with["quantization"].startswith(f"{kind}, relative error ")
    original, other = (Instance.open(each, InstanceOptions(threads=1)).run({"x": X})["y"] for each in (stack, bundle))
    assert np.linalg.norm(original - other) < 0.5 * np.linalg.norm(original)
    assert original.dtype == other.dtype


def test_weights_inside_functions_are_reached(stack, tmp_path):
    """Tools that see only the graph change nothing in a model of functions, and do not say so."""
    quantize_bundle(stack, tmp_path / "q", QuantizeOptions("int8-dynamic", max_error=0.9))

    weights = (tmp_path / "q" / "weights.safetensors").read_bytes()
    header = json.loads(weights[8 : 8 + int.from_bytes(weights[:8], "little")])
    assert {entry["dtype"] for name, entry in header.items() if name != "__metadata__"} >= {"I8"}


@pytest.mark.parametrize("kind", ["int8-dynamic", "int4-blockwise"])
def test_a_bound_that_is_exceeded_leaves_nothing_behind(stack, tmp_path, kind):
    with pytest.raises(PrecisionLost, match=r"at most 0\.01% is accepted(.|\n)*main\.y: relative"):
        quantize_bundle(stack, tmp_path / "q" / "1", QuantizeOptions(kind, max_error=0.0001))

    assert list((tmp_path / "q").iterdir()) == []


def test_a_bundle_can_take_its_own_place(stack):
    before = stack.manifest.files["weights.safetensors"].size

    quantize_bundle(stack, stack.path, QuantizeOptions("float16"))

    assert open_bundle(stack.path).manifest.files["weights.safetensors"].size < before
    assert [path.name for path in stack.path.parent.iterdir()] == [stack.path.name]


def test_given_samples_are_used_and_checked(stack, tmp_path):
    report = quantize_bundle(stack, tmp_path / "q", QuantizeOptions("float16", samples=[{"x": X}, {"x": X[:1]}]))

    assert "errors on given samples" in str(report)
    with pytest.raises(InvalidArgument, match="expected 32"):
        quantize_bundle(stack, tmp_path / "q", QuantizeOptions("float16", samples=[{"x": X[:, :2]}]))


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"kind": "int8"}, "unknown quantization 'int8'; known are int8-dynamic"),
        ({"kind": "float16", "max_error": -1.0}, "max_error is -1.0"),
        ({"kind": "float16", "max_error": float("nan")}, "max_error is nan"),
    ],
)
def test_options_are_checked(options, text):
    with pytest.raises(ConfigError, match=text):
        QuantizeOptions(**options)


@pytest.mark.parametrize("kind", OPERATORS)
def test_a_model_without_large_weights_is_not_passed_off_as_quantized(tmp_path, kind):
    graph = helper.make_graph(
        [helper.make_node("Neg", ["x"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n"])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    specs = [TensorSpec(name, DType.float32, ("n",)) for name in "xy"]
    bundle = Bundle("neg", {"main": GraphPart(model, (specs[0],), (specs[1],))}).write(tmp_path / "1")

    with pytest.raises(ConfigError, match=f"{kind} changes nothing"):
        quantize_bundle(bundle, tmp_path / "2", QuantizeOptions(kind))


@pytest.mark.parametrize("kind", OPERATORS)
def test_graphs_over_one_set_of_weights_stay_so(stack, tmp_path, kind):
    model = load_flat(stack, "model.onnx")
    weights = split_weights(model)
    part = GraphPart(model, stack.inputs, stack.outputs)
    bundle = Bundle("two", {"main": part, "again": part}, weights).write(tmp_path / "two")

    report = quantize_bundle(bundle, tmp_path / "q", QuantizeOptions(kind, max_error=0.9))

    written = open_bundle(tmp_path / "q")
    assert [graph.graph for graph in report.graphs] == ["main", "again"]
    answers = [Instance.open(written, graph=key).run({"x": X})["y"] for key in ("main", "again")]
    np.testing.assert_array_equal(*answers)
    with pytest.raises(ConfigError, match="has no graph 'third'; there are main, again"):
        Instance.open(written, graph="third")


F32, I64 = TensorSpec("y", DType.float32, ("n",)), TensorSpec("y", DType.int64, ("n",))


@pytest.mark.parametrize(
    ("spec", "original", "other", "relative"),
    [
        (F32, [3.0, 4.0], [3.0, 4.0], 0.0),
        (F32, [3.0, 4.0], [3.0, 4.5], 0.1),
        (F32, [0.0, 0.0], [0.0, 0.0], 0.0),
        (F32, [0.0, 0.0], [0.0, 1.0], 1.0),
        (F32, [1.0, np.inf], [1.0, np.inf], 0.0),
        (F32, [1.0, 2.0], [1.0, np.inf], np.inf),
        (F32, [1.0, 2.0], [1.0, np.nan], np.inf),
        (F32, [1.0, 2.0], [1.0], np.inf),
        (I64, [1, 2, 3, 4], [1, 2, 3, 5], 0.25),
    ],
)
def test_errors_are_norms_or_shares(spec, original, other, relative):
    dtype = spec.dtype.to_numpy()
    (error,) = compare(
        lambda _: {"y": np.array(original, dtype)}, lambda _: {"y": np.array(other, dtype)}, [spec], [{}]
    )

    assert error.relative == pytest.approx(relative)
