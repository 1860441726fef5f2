from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image
from safetensors.numpy import load, save_file

from tidemill.cli import main
from tidemill.cli.pictures import Normalisation
from tidemill.cli.tensor_files import read_inputs, read_requests
from tidemill.dtype import DType
from tidemill.errors import InvalidArgument
from tidemill.protocol.types import TensorSpec

Capture = pytest.CaptureFixture[str]

X = np.arange(6, dtype=np.float32).reshape(2, 3)
SPEC = TensorSpec("x", DType.float32, ("", 3))
WORDS = TensorSpec("text", DType.string, ("",))


def _run(capsys: Capture, *arguments: str) -> str:
    assert main(["client", *arguments]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("wire", ["http", "grpc"])
def test_ls_shows_models_and_states(server: dict[str, str], capsys: Capture, wire: str) -> None:
    lines = _run(capsys, "ls", server[wire]).splitlines()
    assert lines[0].split() == ["MODEL", "VERSION", "STATE"]
    assert ["identity", "1", "READY"] in [line.split() for line in lines]
    found = json.loads(_run(capsys, "ls", server[wire], "--json"))
    assert {"name": "identity", "version": "1", "state": "READY", "reason": ""} in found


@pytest.mark.parametrize("wire", ["http", "grpc"])
def test_show_tells_the_signature(server: dict[str, str], capsys: Capture, wire: str) -> None:
    lines = _run(capsys, "show", "tokens", server[wire]).splitlines()
    assert [line.split(maxsplit=1) for line in lines][3:7] == [
        ["ready", "yes"],
        ["input", "input_ids: INT64[?, ?]"],
        ["input", "attention_mask: INT64[?, ?]"],
        ["output", "y: INT64[?]"],
    ]
    assert json.loads(_run(capsys, "show", "tokens", server[wire], "--json"))["inputs"][0]["shape"] == [-1, -1]


@pytest.mark.parametrize("wire", ["http", "grpc"])
def test_infer_answers_as_a_table(server: dict[str, str], capsys: Capture, wire: str) -> None:
    out = _run(capsys, "infer", "identity", server[wire], "--input", "x=[1, 2.5, 3]")
    assert out == "y: FP32[1, 3]\n  1.0000  2.5000  3.0000\n"


def test_the_address_may_come_from_the_environment(
    server: dict[str, str], capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDEMILL_URL", server["grpc"])
    assert "y: FP32[1, 3]" in _run(capsys, "infer", "identity", "-i", "x=[1, 2, 3]")


@pytest.mark.parametrize("name", ["a.npy", "a.npz", "a.safetensors", "a.json", "request.json"])
@pytest.mark.parametrize("named", [True, False])
def test_files_of_every_kind_go_in(tmp_path: Path, name: str, named: bool) -> None:
    path = tmp_path / name
    if name == "a.npy":
        np.save(path, X)
    elif name == "a.npz":
        np.savez(path, x=X)
    elif name == "a.safetensors":
        save_file({"x": X}, path)
    elif name == "a.json":
        path.write_text(json.dumps(X.tolist() if named else {"x": X.tolist()}))
    else:
        item = {"name": "x", "datatype": "FP32", "shape": [2, 3], "data": X.ravel().tolist()}
        path.write_text(
            json.dumps({"inputs": [item]} if not named else {"content": X.ravel().tolist(), "shape": [2, 3]})
        )
    (found,) = read_inputs([f"x=@{path}" if named else f"@{path}"], [SPEC]).values()
    assert np.array_equal(found, X)
    assert found.dtype == X.dtype


@pytest.mark.parametrize("form", ["json", "npy", "safetensors"])
def test_answers_of_every_kind_come_out(server: dict[str, str], tmp_path: Path, capsys: Capture, form: str) -> None:
    np.save(tmp_path / "x.npy", X)
    out = tmp_path / f"answer.{form}"
    _run(capsys, "infer", "identity", server["http"], "-i", f"x=@{tmp_path / 'x.npy'}", "--out", str(out))
    read = {
        "json": lambda: np.array(json.loads(out.read_text())["y"], np.float32),
        "npy": lambda: np.load(out),
        "safetensors": lambda: load(out.read_bytes())["y"],
    }[form]()
    assert np.array_equal(read, X)


def test_stdin_goes_in(server: dict[str, str], capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    body = json.dumps({"x": [[1, 2, 3]]}).encode()
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(body)))
    assert "1.0000  2.0000  3.0000" in _run(capsys, "infer", "identity", server["http"], "-i", "@-")


def test_text_is_an_element_and_a_file_of_text_one_a_line(tmp_path: Path) -> None:
    (tmp_path / "words.txt").write_text("one\ntwo\n", encoding="utf-8")
    assert read_inputs(["text=hello = world"], [WORDS])["text"].tolist() == [b"hello = world"]
    assert read_inputs(['text=["a", "b"]'], [WORDS])["text"].tolist() == [b"a", b"b"]
    assert read_inputs([f"text=@{tmp_path / 'words.txt'}"], [WORDS])["text"].tolist() == [b"one", b"two"]


@pytest.mark.parametrize("channels_first", [True, False])
@pytest.mark.parametrize("dtype", [DType.float32, DType.uint8])
def test_a_picture_becomes_what_the_model_takes(tmp_path: Path, channels_first: bool, dtype: DType) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (4, 6, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "p.png")
    spec = TensorSpec("x", dtype, ("", 3, "", "") if channels_first else ("", 4, 6, 3))
    found = read_inputs([f"x=@{tmp_path / 'p.png'}"], [spec], Normalisation((0.5,) * 3, (0.25,) * 3))["x"]
    expected = pixels if dtype is DType.uint8 else ((pixels / 255 - 0.5) / 0.25).astype(np.float32)
    assert np.array_equal(found, expected.transpose(2, 0, 1)[None] if channels_first else expected[None])


def test_a_picture_is_resized_and_goes_as_it_is_where_bytes_are_taken(tmp_path: Path) -> None:
    path = tmp_path / "p.png"
    Image.new("RGB", (20, 10), (255, 0, 0)).save(path)
    spec = TensorSpec("x", DType.uint8, ("", 8, 4, 3))
    found = read_inputs([f"x=@{path}"], [spec])["x"]
    assert found.shape == (1, 8, 4, 3)
    assert (found == [255, 0, 0]).all()
    assert read_inputs([f"text=@{path}"], [WORDS])["text"].tolist() == [path.read_bytes()]


@pytest.mark.parametrize(
    ("inputs", "part"),
    [
        (["y=1"], "no input 'y', it takes x: FP32[?, 3]"),
        ([], "also takes x: FP32[?, 3]; give --input NAME=VALUE"),
        (["x"], "'x', expected one of --input NAME=VALUE"),
        (["x=one"], "input 'x' is 'one', expected JSON for x: FP32[?, 3]"),
        (["x=[[1, 2], [3]]"], "its lists differ in length"),
        (['x=["a", "b", "c"]'], "a string, which FP32 does not take"),
        (["x=@{tmp}/none"], "cannot read"),
        (["x=@{tmp}/bad.npy"], "x"),
        (["@{tmp}/bad.json"], "no JSON"),
        (["x=@{tmp}/int.npy"], "INT64 in the .npy file, expected FP32"),
        (["x=@{tmp}/other.npz"], "holds 'z', not 'x'"),
        (["x=@{tmp}/p.png"], "a picture does not fit input x: FP32[?, 3]"),
    ],
)
def test_what_does_not_fit_is_told(tmp_path: Path, inputs: list[str], part: str) -> None:
    (tmp_path / "bad.npy").write_bytes(b"\x93NUMPY\1\0\xff\xff")
    (tmp_path / "bad.json").write_text("{")
    np.save(tmp_path / "int.npy", np.ones(3, np.int64))
    np.savez(tmp_path / "other.npz", z=X)
    Image.new("RGB", (2, 2)).save(tmp_path / "p.png")
    with pytest.raises(InvalidArgument) as caught:
        read_inputs([text.format(tmp=tmp_path) for text in inputs], [SPEC])
    assert part in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["infer", "identity", "-i", "x=[1]"], "axis 1"),
        (["infer", "nobody", "-i", "x=[1]"], "nobody"),
        (["infer", "identity", "-i", "x=[1, 2, 3]", "--select", "z"], "z"),
        (["infer", "two", "-i", "x=[1, 2]", "--format", "npy"], "name one with --select"),
        (["infer", "identity", "-i", "x=[1, 2, 3]", "--out", "a.bin"], "a.bin has no known ending"),
        (["infer", "identity", "-i", "x=[1, 2, 3]", "--mean", "1,2"], "--mean is '1,2'"),
        (["ls", "--header", "key"], "--header is 'key', expected NAME=VALUE"),
        (["ls", "ftp://host"], "'ftp://host' is no address"),
    ],
)
def test_errors_are_one_line(
    server: dict[str, str], capsys: Capture, monkeypatch: pytest.MonkeyPatch, arguments: list[str], part: str
) -> None:
    monkeypatch.setenv("TIDEMILL_URL", server["http"])
    assert main(["client", *arguments]) == 1
    err = capsys.readouterr().err
    assert part in err
    assert err.count("\n") == 1


def test_recorded_requests_are_read_one_by_one(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"x": [[1, 2, 3]]}\n\n{"x": [[4, 5, 6]]}\n')
    (tmp_path / "b.json").write_text('{"data": [{"x": [1, 2, 3]}, {"x": {"content": [4, 5, 6], "shape": [1, 3]}}]}')
    np.savez(tmp_path / "c.npz", x=X)
    for name in ("a.jsonl", "b.json"):
        found = read_requests(tmp_path / name, [SPEC])
        assert [feed["x"].tolist() for feed in found] == [[[1, 2, 3]], [[4, 5, 6]]]
    assert [feed["x"].shape for feed in read_requests(tmp_path / "c.npz", [SPEC])] == [(2, 3)]
