from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tidemill.bundle import open_foreign
from tidemill.dtype import DType
from tidemill.errors import InvalidBundle
from tidemill.protocol.types import TensorSpec


def save(folder: Path, inputs: list[onnx.ValueInfoProto] | None = None, location: str | None = None) -> None:
    weight = helper.make_tensor("w", TensorProto.FLOAT, [3], np.ones(3, np.float32))
    if location is not None:
        weight = TensorProto(name="w", data_type=1, dims=[3], data_location=TensorProto.EXTERNAL)
        weight.external_data.add(key="location", value=location)
    given = inputs or [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 3])]
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", None])
    node = helper.make_node("Mul", [given[0].name, "w"], ["y"])
    graph = helper.make_graph([node], "", given, [output], [weight])
    (folder / "model.onnx").write_bytes(helper.make_model(graph).SerializeToString())


def test_reads_the_signature(tmp_path: Path) -> None:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 3])
    overridable = helper.make_tensor_value_info("w", TensorProto.FLOAT, [3])
    save(tmp_path, [x, overridable])
    stored = open_foreign(tmp_path)
    assert stored.inputs == (TensorSpec("x", DType.float32, ("batch", 3)),)
    assert stored.outputs == (TensorSpec("y", DType.float32, ("batch", "")),)
    assert stored.name == tmp_path.name
    assert stored.weights_path is None
    stored.verify()


def test_minus_one_is_a_free_size(tmp_path: Path) -> None:
    save(tmp_path, [helper.make_tensor_value_info("x", TensorProto.FLOAT, [-1, 3])])
    assert open_foreign(tmp_path).inputs[0].shape == ("", 3)


def test_external_data_belongs_to_the_bundle(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "w.bin").write_bytes(np.ones(3, np.float32).tobytes())
    save(tmp_path, location="./data/w.bin")
    stored = open_foreign(tmp_path)
    assert list(stored.manifest.files) == ["model.onnx", "data/w.bin"]
    (tmp_path / "data" / "w.bin").write_bytes(bytes(12))
    with pytest.raises(InvalidBundle, match=r"data/w\.bin has sha256"):
        stored.verify()


@pytest.mark.parametrize(
    ("location", "text"),
    [
        ("../secret.bin", "leads out of the bundle's folder"),
        ("/etc/hostname", "leads out of the bundle's folder"),
        ("w\0.bin", "leads out of the bundle's folder"),
        ("absent.bin", r"absent\.bin belongs to the bundle and is missing"),
    ],
)
def test_external_data_stays_in_the_folder(tmp_path: Path, location: str, text: str) -> None:
    folder = tmp_path / "m"
    folder.mkdir()
    save(folder, location=location)
    with pytest.raises(InvalidBundle, match=text):
        open_foreign(folder)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (helper.make_tensor_value_info("x", TensorProto.FLOAT, None), "input 'x' must be a tensor of known rank"),
        (helper.make_tensor_sequence_value_info("x", TensorProto.FLOAT, [1]), "input 'x' must be a tensor"),
        (helper.make_tensor_value_info("x", TensorProto.COMPLEX64, [1]), "input 'x': unknown ONNX element type 14"),
    ],
)
def test_signatures_that_cannot_be_served(tmp_path: Path, value: Any, text: str) -> None:
    save(tmp_path, [value])
    with pytest.raises(InvalidBundle, match=text):
        open_foreign(tmp_path)


def test_no_model_and_no_onnx(tmp_path: Path) -> None:
    with pytest.raises(InvalidBundle, match=r"model\.onnx belongs to the bundle and is missing"):
        open_foreign(tmp_path)
    (tmp_path / "model.onnx").write_bytes(b"\xff" * 20)
    with pytest.raises(InvalidBundle, match=r"model\.onnx is no ONNX model"):
        open_foreign(tmp_path)
