from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tidemill.cli import main

WriteModel = Callable[..., Path]
Capture = pytest.CaptureFixture[str]

pytestmark = pytest.mark.usefixtures("restored_logging")


def test_inspect_shows_signature_and_files(write_model: WriteModel, capsys: Capture) -> None:
    assert main(["inspect", str(write_model("two") / "two" / "1")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "name     two" in lines
    start = lines.index("graph    main (model.onnx)")
    assert lines[start + 1 : start + 4] == [
        "  input  x: FP32[n, 2]",
        "  output y: FP32[n, 2]",
        "  output z: FP32[n, 2]",
    ]
    assert lines[start + 4].startswith("file     model.onnx  ")


def test_inspect_tells_weights_and_what_loading_makes_of_them(tmp_path: Path, capsys: Capture) -> None:
    assert main(["build", "minilm", "--repository", str(tmp_path / "models")]) == 0
    capsys.readouterr()
    command = ["inspect", str(tmp_path / "models" / "minilm" / "1"), "--load", "--artifacts", str(tmp_path / "kept")]
    told = []
    for _ in range(2):
        assert main(command) == 0
        told.append(capsys.readouterr().out.splitlines())
    for lines, artifact in zip(told, ("compiled", "hit"), strict=True):
        assert "  function EncoderLayer: 42 nodes, called 6 times" in lines
        assert "weights  weights.safetensors: 104 tensors, 90,856,960 bytes, mapped" in lines
        assert any(line.startswith("runs on  CPUExecutionProvider, ") for line in lines)
        assert any(line.startswith("nodes    CPUExecutionProvider ") for line in lines)
        assert f"artifact {artifact}" in lines
        assert any(line.startswith("memory   ") for line in lines)


def test_check_says_how_a_model_would_be_served(write_model: WriteModel, capsys: Capture) -> None:
    assert main(["check", str(write_model("two") / "two")]) == 0
    out = capsys.readouterr().out
    assert out.startswith("two version 1: ok\n  input   x: FP32[n, 2]\n")
    assert "runs on CPUExecutionProvider" in out
    assert "batched yes" in out


def test_check_covers_every_version_and_a_base(write_model: WriteModel, capsys: Capture) -> None:
    write_model("mean", "base")
    root = write_model("two", "base", version=2)
    (root / "derived").mkdir()
    (root / "derived" / "model.yaml").write_text("base: base")
    assert main(["check", str(root / "derived")]) == 0
    out = capsys.readouterr().out
    assert "derived version 1: ok" in out
    assert "batched no: output 'y' of a row depends on the other rows" in out
    assert "derived version 2: ok" in out


def test_check_looks_at_sequences_and_ensembles(write_model: WriteModel, capsys: Capture) -> None:
    root = write_model("identity", config={"sequence": {"state": [{"input": "x", "output": "y", "shown": True}]}})
    write_model("two")
    steps = [{"model": "two", "inputs": {"x": "a"}, "outputs": {"y": "b"}}]
    (root / "all").mkdir()
    (root / "all" / "model.yaml").write_text(json.dumps({"ensemble": {"steps": steps}}))
    assert main(["check", str(root / "identity")]) == 0
    assert main(["check", str(root / "all")]) == 0
    shown = capsys.readouterr().out
    assert "keeps   y as x of the next request" in shown
    assert "input   a: FP32[n, 2]" in shown
    steps[0]["inputs"] = {"w": "a"}
    (root / "all" / "model.yaml").write_text(json.dumps({"ensemble": {"steps": steps}}))
    assert main(["check", str(root / "all")]) == 1
    assert "model 'two' has no input 'w'" in capsys.readouterr().err


def test_check_finds_a_changed_file(write_model: WriteModel, capsys: Capture) -> None:
    folder = write_model("two") / "two"
    model = folder / "1" / "model.onnx"
    content = bytearray(model.read_bytes())
    content[-1] ^= 1
    model.write_bytes(content)
    assert main(["check", str(folder)]) == 1
    assert "model.onnx has sha256" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["check", "{tmp}/none"], "is not a folder"),
        (["check", "{tmp}"], "no version of it is complete"),
        (["inspect", "{tmp}"], "model.onnx"),
        (["serve", "{tmp}/none"], "is not a folder"),
        (["serve", "{tmp}", "--http-port", "70000"], "setting 'http_port' (from flag) is 70000"),
        (["serve", "{tmp}", "--config", "{tmp}/none.yaml"], "cannot read"),
        (["build", "minlm"], "did you mean 'minilm'?"),
    ],
)
def test_errors_are_one_line_and_status_1(tmp_path: Path, capsys: Capture, arguments: list[str], part: str) -> None:
    assert main([argument.format(tmp=tmp_path) for argument in arguments]) == 1
    captured = capsys.readouterr()
    assert part in captured.err
    assert captured.err.count("\n") == 1
    assert not captured.out


def test_build_lists_the_zoo(capsys: Capture) -> None:
    assert main(["build"]) == 0
    assert "mlp" in capsys.readouterr().out.split()


def test_build_writes_a_model_that_check_accepts(tmp_path: Path, capsys: Capture) -> None:
    assert main(["build", "mlp", "--repository", str(tmp_path)]) == 0
    assert f"tidemill serve {tmp_path}" in capsys.readouterr().out
    assert main(["check", str(tmp_path / "mlp")]) == 0


@pytest.mark.parametrize("arguments", [[], ["srve"], ["serve"], ["serve", "m", "--http-port", "x"]])
def test_a_wrong_line_is_a_usage_error(capsys: Capture, arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert "usage: tidemill" in capsys.readouterr().err


def test_help_imports_nothing_heavy() -> None:
    script = (
        "import sys\n"
        "from tidemill.cli import main\n"
        "try:\n    main(['--help'])\nexcept SystemExit:\n    pass\n"
        "print(sorted({'numpy', 'onnxruntime', 'fastapi', 'grpc', 'pydantic'} & set(sys.modules)), file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert done.stderr.strip() == "[]"
    assert "serve" in done.stdout
