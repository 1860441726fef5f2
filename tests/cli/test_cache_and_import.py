from __future__ import annotations

import hashlib
import os
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tidemill.bundle import open_bundle
from tidemill.cli.main import main
from tidemill.weights.cache import Cache
from tidemill.weights.record import Record, write_record


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cache:
    """A cache as two fetches leave it, the older one under two URLs."""
    root = tmp_path / "cache"
    (root / "blobs").mkdir(parents=True)
    for age, (content, names) in enumerate({b"new": ["c"], b"old!": ["a", "b"]}.items()):
        digest = hashlib.sha256(content).hexdigest()
        blob = root / "blobs" / digest
        blob.write_bytes(content)
        for name in names:
            write_record(root / "records" / f"{name}.json", Record(f"s3://m/{name}", digest, len(content), '"1"'))
        os.utime(blob, (1e9 - age, 1e9 - age))
    monkeypatch.setenv("TIDEMILL_CACHE", str(root))
    return Cache(root)


OLD = hashlib.sha256(b"old!").hexdigest()


def test_ls(cache: Cache, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cache", "ls"]) == 0
    first, second, total = capsys.readouterr().out.splitlines()
    assert first.split()[:2] == [OLD[:12], "4"]
    assert first.endswith("s3://m/a s3://m/b")
    assert second.endswith("s3://m/c")
    assert total == f"2 files, 7 bytes in {cache.root}"


@pytest.mark.parametrize("which", [OLD[:12], "s3://m/b"])
def test_rm(cache: Cache, which: str) -> None:
    assert main(["cache", "rm", which]) == 0
    assert [blob.read_bytes() for blob in cache.blobs()] == [b"new"]
    assert main(["cache", "rm", "--all"]) == 0
    assert cache.blobs() == []


@pytest.mark.parametrize(("arguments", "text"), [([], "give --all"), (["s3://other"], "s3://other is not in")])
def test_rm_of_nothing(cache: Cache, arguments: list[str], text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cache", "rm", *arguments]) == 1
    assert text in capsys.readouterr().err
    assert len(cache.blobs()) == 2


def test_what_is_in_use_stays(cache: Cache, capsys: pytest.CaptureFixture[str]) -> None:
    held = cache.fetch("s3://m/a", OLD)
    assert main(["cache", "rm", "--all"]) == 1
    assert f"{OLD[:12]} is in use and stays\nremoved 1 files" in capsys.readouterr().out
    assert held.path.exists()


def test_verify(cache: Cache, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cache", "verify"]) == 0
    (cache.root / "blobs" / OLD).write_bytes(b"bad!")
    assert main(["cache", "verify"]) == 1
    assert f"{OLD} is damaged; run: tidemill cache rm {OLD[:12]}\n1 of 2 files are whole" in capsys.readouterr().out


def test_an_empty_cache_and_a_wrong_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["cache", "--root", str(tmp_path / "none"), "ls"]) == 0
    assert "0 files" in capsys.readouterr().out
    monkeypatch.setenv("TIDEMILL_CACHE_LIMIT", "lots")
    assert main(["cache", "ls"]) == 1
    assert "TIDEMILL_CACHE_LIMIT is 'lots'" in capsys.readouterr().err


def write_onnx(path: Path) -> None:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 300])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 300])
    weight = numpy_helper.from_array(np.ones(300, np.float32), "w")
    graph = helper.make_graph([helper.make_node("Mul", ["x", "w"], ["y"])], "g", [x], [y], [weight])
    path.parent.mkdir(exist_ok=True)
    onnx.save(helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 21)]), path)


@pytest.mark.parametrize(
    ("file", "options", "place"),
    [
        ("lab/net.onnx", [], "net/1"),
        ("lab/model.onnx", [], "lab/1"),
        ("lab/net.onnx", ["--name", "other", "--version", "7"], "other/7"),
    ],
)
def test_import(tmp_path: Path, file: str, options: list[str], place: str) -> None:
    write_onnx(tmp_path / file)
    models = tmp_path / "models"
    assert main(["import", str(tmp_path / file), "--repository", str(models), *options]) == 0
    stored = open_bundle(models / place)
    assert stored.weights_path is not None
    stored.verify()
    if not options:
        assert main(["import", str(tmp_path / file), "--repository", str(models)]) == 0
        assert open_bundle((models / place).with_name("2")).name == stored.name
    assert main(["check", str(stored.path.parent)]) == 0


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["absent.onnx"], "absent.onnx belongs to the bundle and is missing"),
        (["net.onnx", "--name", "a/../../x"], "must not hold slashes"),
        (["net.onnx", "--version", "0"], "a number from 1, not 0"),
    ],
)
def test_imports_that_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str], text: str
) -> None:
    monkeypatch.chdir(tmp_path)
    write_onnx(tmp_path / "net.onnx")
    assert main(["import", *arguments]) == 1
    assert text in capsys.readouterr().err
    assert not (tmp_path / "models").exists()


def test_a_folder_of_somebody_is_not_replaced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_onnx(tmp_path / "net.onnx")
    (tmp_path / "models" / "net" / "3").mkdir(parents=True)
    (tmp_path / "models" / "net" / "3" / "notes.txt").write_text("mine")
    arguments = ["import", str(tmp_path / "net.onnx"), "--repository", str(tmp_path / "models")]
    assert main([*arguments, "--version", "3"]) == 1
    assert "cannot be replaced" in capsys.readouterr().err
