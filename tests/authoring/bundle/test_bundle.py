from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper

from tidemill.bundle import Bundle, GraphPart, StoredBundle, open_bundle
from tidemill.bundle import external as external_module
from tidemill.driver import Buffer
from tidemill.dtype import DType
from tidemill.protocol.types import TensorSpec
from tidemill.weights import open_safetensors, write_safetensors

X = TensorSpec("x", DType.float32, ("batch", 3))
Y = TensorSpec("y", DType.float32, ("batch", 4))
W = np.arange(12, dtype=np.float32).reshape(4, 3)
B = np.array([1, 2, 3, 4], np.float32)
ROWS = np.array([[1, 2, 3], [4, 5, 6]], np.float32)


def weight(name: str, shape: list[int], dtype: DType = DType.float32) -> TensorProto:
    return TensorProto(name=name, dims=shape, data_type=dtype.onnx, data_location=TensorProto.EXTERNAL)


def part(nodes: list[onnx.NodeProto], initializers: list[TensorProto], output: TensorSpec = Y) -> GraphPart:
    values = [helper.make_tensor_value_info(spec.name, spec.dtype.onnx, spec.shape) for spec in (X, output)]
    graph = helper.make_graph(nodes, "g", values[:1], values[1:], initializers)
    model = helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 21)])
    return GraphPart(model, (X,), (output,))


def linear(weight_name: str = "l.weight", bias_name: str = "l.bias") -> GraphPart:
    gemm = helper.make_node("Gemm", ["x", weight_name, bias_name], ["y"], transB=1)
    return part([gemm], [weight(weight_name, [4, 3]), weight(bias_name, [4])])


def run(stored: StoredBundle, key: str = "main") -> Any:
    path = stored.path / stored.manifest.graphs[key].file
    onnx.checker.check_model(path, full_check=True)
    return ort.InferenceSession(path, providers=["CPUExecutionProvider"]).run(None, {"x": ROWS})[0]


@pytest.mark.parametrize(
    "weights",
    [
        {"l.weight": W, "l.bias": B, "unused": B},
        {"l.weight": np.asfortranarray(W), "l.bias": np.repeat(B, 2)[::2]},
        {"l.weight": Buffer.from_numpy(W.astype(">f4").astype("f4")), "l.bias": Buffer.from_numpy(B)},
    ],
    ids=["plain", "layouts", "buffers"],
)
def test_arrays_become_a_bundle_that_onnxruntime_runs(tmp_path: Path, weights: Mapping[str, Any]) -> None:
    stored = Bundle("mlp", {"main": linear()}, weights, source="models.MLP").write(tmp_path / "mlp" / "1")
    assert sorted(os.listdir(stored.path)) == ["bundle.json", "model.onnx", "weights.safetensors"]
    assert (stored.name, stored.inputs, stored.outputs) == ("mlp", (X,), (Y,))
    assert stored.manifest.opset == 21
    np.testing.assert_array_equal(run(stored), ROWS @ W.T + B)
    stored.verify()
    assert open_bundle(stored.path) == stored
    assert os.listdir(tmp_path / "mlp") == ["1"]


def test_a_checkpoint_file_is_taken_byte_for_byte(tmp_path: Path) -> None:
    checkpoint = tmp_path / "checkpoint.safetensors"
    write_safetensors(checkpoint, {"enc.w": W, "l.bias": B, "extra": np.ones(3, np.int8)}, {"format": "pt"})
    stored = Bundle("m", {"main": linear()}, checkpoint, rename={"l.weight": "enc.w"}).write(tmp_path / "m")
    assert stored.weights_path is not None
    assert stored.weights_path.read_bytes() == checkpoint.read_bytes()
    np.testing.assert_array_equal(run(stored), ROWS @ W.T + B)


def test_a_sharded_checkpoint_becomes_one_file(tmp_path: Path) -> None:
    write_safetensors(tmp_path / "1.safetensors", {"l.weight": W})
    write_safetensors(tmp_path / "2.safetensors", {"l.bias": B})
    index = tmp_path / "m.safetensors.index.json"
    index.write_text('{"weight_map": {"l.weight": "1.safetensors", "l.bias": "2.safetensors"}}')
    stored = Bundle("m", {"main": linear()}, index).write(tmp_path / "m")
    np.testing.assert_array_equal(run(stored), ROWS @ W.T + B)


def test_graphs_share_the_weights(tmp_path: Path) -> None:
    double = part(
        [helper.make_node("Add", ["l.bias", "l.bias"], ["y"])], [weight("l.bias", [4])], replace(Y, shape=(4,))
    )
    stored = Bundle("m", {"main": linear(), "double": double}, {"l.weight": W, "l.bias": B}).write(tmp_path / "m")
    np.testing.assert_array_equal(run(stored), ROWS @ W.T + B)
    np.testing.assert_array_equal(run(stored, "double"), B + B)
    assert stored.manifest.graphs["double"].file == "double.onnx"


def test_narrow_floats_and_empty_weights(tmp_path: Path) -> None:
    values = np.array([1, -2, 0.5], ml_dtypes.bfloat16)
    nodes = [
        helper.make_node("Cast", ["w"], ["c"], to=TensorProto.FLOAT),
        helper.make_node("Concat", ["c", "empty"], ["d"], axis=0),
        helper.make_node("Mul", ["x", "d"], ["y"]),
    ]
    model = part(nodes, [weight("w", [3], DType.bfloat16), weight("empty", [0])], replace(Y, shape=("batch", 3)))
    stored = Bundle("m", {"main": model}, {"w": values, "empty": np.empty(0, np.float32)}).write(tmp_path / "m")
    np.testing.assert_array_equal(run(stored), ROWS * values.astype(np.float32))


def test_a_model_without_weights_has_no_weights_file(tmp_path: Path) -> None:
    model = part([helper.make_node("Relu", ["x"], ["y"])], [], replace(Y, shape=("batch", 3)))
    stored = Bundle("m", {"main": model}).write(tmp_path / "m")
    assert (stored.weights_path, list(stored.manifest.files)) == (None, ["model.onnx"])
    np.testing.assert_array_equal(run(stored), ROWS)


@pytest.mark.parametrize("names", [("l.weight",), ("tied",), ("l.weight", "tied")])
def test_tied_weights_are_found_under_any_name(tmp_path: Path, names: tuple[str, ...]) -> None:
    weights = dict.fromkeys(names, W) | {"l.bias": B}
    stored = Bundle("m", {"main": linear()}, weights, tied={"tied": "l.weight"}).write(tmp_path / "m")
    np.testing.assert_array_equal(run(stored), ROWS @ W.T + B)
    assert stored.manifest.tied == {"tied": "l.weight"}


@pytest.mark.parametrize("as_file", [True, False])
def test_all_faults_are_told_at_once_and_nothing_is_left(tmp_path: Path, as_file: bool) -> None:
    weights: Any = {"l.weigth": W, "l.bias": B.astype(np.float64)}
    if as_file:
        write_safetensors(tmp_path / "w.safetensors", weights)
        weights = tmp_path / "w.safetensors"
    before = os.listdir(tmp_path)
    with pytest.raises(ValueError, match=r"'l.weight' float32\[4, 3\] is missing, .* 'l.weigth'.; .*dtype float64"):
        Bundle("m", {"main": linear()}, weights).write(tmp_path / "m")
    assert os.listdir(tmp_path) == before


def test_pickled_checkpoints_are_refused(tmp_path: Path) -> None:
    (tmp_path / "w.pt").write_bytes(b"cos\nsystem\n.")
    with pytest.raises(ValueError, match=r"w\.pt cannot be read .*: its pickle names os\.system, which is not"):
        Bundle("m", {"main": linear()}, tmp_path / "w.pt").write(tmp_path / "m")


def test_faults_name_the_graph_if_there_are_several() -> None:
    with pytest.raises(ValueError, match=r"graph 'main': weight 'a'.*; graph 'other': weight 'c'"):
        Bundle("m", {"main": linear("a"), "other": linear("c")}, {"l.bias": B}).write("unused")


def test_the_model_that_was_given_is_not_changed(tmp_path: Path) -> None:
    graph = linear()
    before = graph.model.SerializeToString()
    Bundle("m", {"main": graph}, {"l.weight": W, "l.bias": B}).write(tmp_path / "m")
    assert graph.model.SerializeToString() == before


def test_writing_twice_gives_the_same_bytes(tmp_path: Path) -> None:
    bundle = Bundle("m", {"main": linear()}, {"l.weight": W, "l.bias": B})
    assert bundle.write(tmp_path / "a").manifest == bundle.write(tmp_path / "b").manifest


def test_a_bundle_may_be_replaced_while_its_weights_are_read(tmp_path: Path) -> None:
    stored = Bundle("m", {"main": linear()}, {"l.weight": W, "l.bias": B}).write(tmp_path / "m")
    assert stored.weights_path is not None
    old = open_safetensors(stored.weights_path)["l.weight"]
    again = Bundle("m", {"main": linear()}, {"l.weight": W + 1, "l.bias": B}).write(tmp_path / "m")
    np.testing.assert_array_equal(old, W)
    np.testing.assert_array_equal(run(again), ROWS @ (W + 1).T + B)
    Bundle("m", {"main": linear()}, again.path / "weights.safetensors").write(again.path)
    assert os.listdir(tmp_path) == ["m"]


def test_other_folders_are_never_replaced(tmp_path: Path) -> None:
    bundle = Bundle("m", {"main": linear()}, {"l.weight": W, "l.bias": B})
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(FileExistsError, match="no whole bundle"):
        bundle.write(tmp_path)
    (tmp_path / "empty").mkdir()
    stored = bundle.write(tmp_path / "empty")
    (stored.path / "notes.txt").write_text("mine")
    with pytest.raises(FileExistsError, match=r"holds notes\.txt, which would be lost"):
        bundle.write(stored.path)


def test_the_folder_can_move_and_the_working_directory_does_not_matter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Bundle("m", {"main": linear()}, {"l.weight": W, "l.bias": B}).write("m")
    (tmp_path / "m").rename(tmp_path / "moved")
    monkeypatch.chdir("/")
    np.testing.assert_array_equal(run(open_bundle(tmp_path / "moved")), ROWS @ W.T + B)


def test_a_graph_over_the_limit_of_protobuf_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(external_module, "_MAX_MODEL_BYTES", 100)
    with pytest.raises(ValueError, match=r"graph 'main' takes \d+ bytes .* limit of 100; make its"):
        Bundle("m", {"main": linear()}, {"l.weight": W, "l.bias": B}).write(tmp_path / "m")


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        ([], "has no graph"),
        (["../x"], "'../x' makes no file name"),
        ([""], "no file name"),
        (["main", "model"], "both"),
    ],
)
def test_graph_keys_that_make_no_files(keys: list[str], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        Bundle("m", dict.fromkeys(keys, linear()))


def test_opening_a_bundle_imports_neither_onnx_nor_pydantic(tmp_path: Path) -> None:
    stored = Bundle("m", {"main": linear()}, {"l.weight": W, "l.bias": B}).write(tmp_path / "m")
    code = (
        "import sys; from tidemill.bundle import open_bundle; open_bundle(sys.argv[1]).verify(); "
        "print({'onnx', 'pydantic', 'yaml', 'onnxruntime'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code, stored.path], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
