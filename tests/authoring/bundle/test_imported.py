from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

from tidemill.bundle import StoredBundle, import_model
from tidemill.dtype import DType
from tidemill.errors import InvalidBundle
from tidemill.protocol.types import TensorSpec
from tidemill.weights import open_safetensors

W = np.random.default_rng(0).standard_normal((30, 20), np.float32)
B = np.arange(20, dtype=np.float32)
ROWS = np.ones((2, 30), np.float32)
X = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 30])
Y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 20])


def model(*extra: TensorProto, nodes: list[onnx.NodeProto] | None = None) -> onnx.ModelProto:
    gemm = helper.make_node("Gemm", ["x", "w", "b"], ["y"])
    initializers = [numpy_helper.from_array(W, "w"), numpy_helper.from_array(B, "b"), *extra]
    # As exporters of old wrote it, "w" is an input that may be left out.
    inputs = [X, helper.make_tensor_value_info("w", TensorProto.FLOAT, [30, 20])]
    graph = helper.make_graph(nodes or [gemm], "net", inputs, [Y], initializers)
    return helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 21)], producer_name="lab")


def run(stored: StoredBundle) -> Any:
    onnx.checker.check_model(stored.graph_path, full_check=True)
    return ort.InferenceSession(stored.graph_path, providers=["CPUExecutionProvider"]).run(None, {"x": ROWS})[0]


def _embedded(path: Path) -> None:
    onnx.save(model(), path)


def _one_file(path: Path) -> None:
    onnx.save(model(), path, save_as_external_data=True, location="data/all.bin", size_threshold=0)


def _a_file_each(path: Path) -> None:
    onnx.save(model(), path, save_as_external_data=True, all_tensors_to_one_file=False, size_threshold=0)


@pytest.mark.parametrize("save", [_embedded, _one_file, _a_file_each])
def test_initializers_become_weights(tmp_path: Path, save: Callable[[Path], None]) -> None:
    (tmp_path / "lab" / "data").mkdir(parents=True)
    save(tmp_path / "lab" / "net.onnx")
    stored = import_model(tmp_path / "lab" / "net.onnx").write(tmp_path / "models" / "net" / "1")
    assert sorted(os.listdir(stored.path)) == ["bundle.json", "model.onnx", "weights.safetensors"]
    assert (stored.name, stored.manifest.source) == ("net", "lab")
    assert stored.inputs == (TensorSpec("x", DType.float32, ("batch", 30)),)
    np.testing.assert_array_equal(open_safetensors(stored.path / "weights.safetensors")["w"], W)
    np.testing.assert_allclose(run(stored), ROWS @ W + B, rtol=1e-5)
    assert stored.graph_path.stat().st_size < 1000


def test_data_in_bodies_and_constants_goes_into_the_graph(tmp_path: Path) -> None:
    constant = helper.make_node("Constant", [], ["c"], value=numpy_helper.from_array(B, "c"))
    out = helper.make_tensor_value_info("o", TensorProto.FLOAT, [20])
    body = helper.make_graph(
        [helper.make_node("Identity", ["k"], ["o"])], "b", [], [out], [numpy_helper.from_array(B + 1, "k")]
    )
    nodes = [
        constant,
        helper.make_node("If", ["yes"], ["d"], then_branch=body, else_branch=body),
        helper.make_node("Gemm", ["x", "w", "b"], ["g"]),
        helper.make_node("Sum", ["g", "c", "d"], ["y"]),
    ]
    onnx.save(
        model(numpy_helper.from_array(np.array(True), "yes"), nodes=nodes),
        tmp_path / "m.onnx",
        save_as_external_data=True,
        location="m.bin",
        size_threshold=0,
        convert_attribute=True,
    )
    (folder := tmp_path / "models").mkdir()
    stored = import_model(tmp_path / "m.onnx", "renamed").write(folder / "1")
    assert stored.name == "renamed"
    np.testing.assert_allclose(run(stored), ROWS @ W + B + B + (B + 1), rtol=1e-5)


def test_what_safetensors_cannot_hold_stays_in_the_graph(tmp_path: Path) -> None:
    words = helper.make_tensor("words", TensorProto.STRING, [200], [b"some words"] * 200)
    four_bits = numpy_helper.from_array(np.zeros(4000, np.int8), "n")
    four_bits.data_type, four_bits.raw_data = TensorProto.INT4, bytes(2000)
    onnx.save(model(words, four_bits), tmp_path / "m.onnx")
    stored = import_model(tmp_path / "m.onnx").write(tmp_path / "1")
    assert sorted(open_safetensors(stored.path / "weights.safetensors")) == ["w"]
    kept = onnx.load(stored.graph_path, load_external_data=False).graph.initializer
    assert {tensor.name for tensor in kept} == {"w", "b", "words", "n"}


def _place(**fields: str) -> Callable[[TensorProto], None]:
    def point(tensor: TensorProto) -> None:
        tensor.CopyFrom(TensorProto(name="w", data_type=1, dims=[30, 20], data_location=TensorProto.EXTERNAL))
        for key, value in ({"location": "w.bin"} | fields).items():
            tensor.external_data.add(key=key, value=value)

    return point


@pytest.mark.parametrize(
    ("damage", "text"),
    [
        (_place(location="../secret"), "leads out of the bundle's folder"),
        (_place(location="/etc/hostname"), "leads out of the bundle's folder"),
        (_place(location="link"), "leads out of the bundle's folder"),
        (_place(location="gone"), "gone belongs to the bundle and is missing"),
        (_place(offset="-1"), "offset '-1'"),
        (_place(offset="8"), r"shape \[30, 20\] has 2392 bytes"),
        (_place(length="9999"), "bytes 0 to 9999 of w.bin, which has 2400"),
    ],
)
def test_data_that_is_not_the_models_is_never_read(
    tmp_path: Path, damage: Callable[[TensorProto], None], text: str
) -> None:
    folder = tmp_path / "m"
    folder.mkdir()
    (tmp_path / "secret").write_bytes(bytes(2400))
    (folder / "w.bin").write_bytes(bytes(2400))
    (folder / "link").symlink_to(tmp_path / "secret")
    proto = model()
    damage(proto.graph.initializer[0])
    (folder / "m.onnx").write_bytes(proto.SerializeToString())
    with pytest.raises(InvalidBundle, match=text) as caught:
        import_model(folder / "m.onnx")
    assert str(folder / "m.onnx") in str(caught.value)
