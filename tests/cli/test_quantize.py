"""Commands that write bundles can write them in fewer bits, or leave nothing behind."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tidemill.bundle import open_bundle
from tidemill.cli.main import main

X = np.random.default_rng(1).standard_normal((4, 32)).astype(np.float32)


@pytest.fixture
def onnx_file(tmp_path: Path) -> Path:
    weight = np.random.default_rng(0).standard_normal((32, 32)).astype(np.float32)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"], "product")],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 32])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 32])],
        [numpy_helper.from_array(weight, "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    onnx.save(model, tmp_path / "product.onnx")
    np.savez(tmp_path / "samples.npz", x=X)
    return tmp_path / "product.onnx"


def importing(file: Path, *options: str) -> list[str]:
    return ["import", str(file), "--repository", str(file.parent / "models"), *options]


def how(folder: Path) -> str:
    return open_bundle(folder).manifest.created_with.get("quantization", "").partition(",")[0]


@pytest.mark.parametrize("kind", ["int8-dynamic", "int4-blockwise", "float16", "bfloat16"])
def test_import_writes_fewer_bits(onnx_file: Path, kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    samples = str(onnx_file.with_name("samples.npz"))

    assert main(importing(onnx_file, "--quantize", kind, "--samples", samples)) == 0

    assert how(onnx_file.parent / "models" / "product" / "1") == kind
    assert "errors on given samples" in capsys.readouterr().out


def test_what_is_too_far_off_is_not_written(onnx_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(importing(onnx_file, "--quantize", "int8-dynamic", "--max-error", "1e-6")) == 1

    assert "so nothing was written" in capsys.readouterr().err
    assert list((onnx_file.parent / "models" / "product").iterdir()) == []


def test_a_bundle_is_quantized_beside_itself_or_in_place(onnx_file: Path) -> None:
    main(importing(onnx_file))
    folder = onnx_file.parent / "models" / "product"

    assert main(["quantize", str(folder / "1"), str(folder / "2"), "--kind", "bfloat16"]) == 0
    assert main(["quantize", str(folder / "1"), str(folder / "1"), "--kind", "float16"]) == 0

    assert [how(folder / version) for version in "12"] == ["float16", "bfloat16"]


def test_samples_are_npz_files(onnx_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(importing(onnx_file))
    folder = onnx_file.parent / "models" / "product" / "1"

    assert main(["quantize", str(folder), str(folder), "--kind", "float16", "--samples", str(onnx_file)]) == 1
    assert "is no .npz file of arrays" in capsys.readouterr().err


def test_a_zoo_model_is_built_in_fewer_bits_or_not_at_all(tmp_path: Path) -> None:
    assert main(["build", "mlp", "--repository", str(tmp_path / "a"), "--quantize", "float16"]) == 0
    assert main(["build", "mlp", "--repository", str(tmp_path / "b"), "--quantize", "float16", "--max-error", "0"]) == 1

    assert how(tmp_path / "a" / "mlp" / "1") == "float16"
    assert not (tmp_path / "b").exists()
