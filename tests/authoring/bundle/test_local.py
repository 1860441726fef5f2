"""Bundles whose weights lie elsewhere: s3 and http, fetched once, refused if they are not what was promised."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
import yaml
from onnx import TensorProto, helper

from tidemill import nn
from tidemill.bundle import Bundle, GraphPart, StoredBundle, make_local, open_bundle
from tidemill.bundle.manifest import BundleManifest
from tidemill.dtype import DType
from tidemill.errors import InvalidBundle, LoadFailed
from tidemill.graph import DeviceRef, TensorType
from tidemill.protocol.types import TensorSpec
from tidemill.weights import Cache, CacheOptions, StoreOptions, write_safetensors

X, Y = TensorSpec("x", DType.float32, ("batch", 3)), TensorSpec("y", DType.float32, ("batch", 4))
W = np.arange(12, dtype=np.float32).reshape(4, 3)
B = np.array([1, 2, 3, 4], np.float32)
ROWS = np.array([[1, 2, 3], [4, 5, 6]], np.float32)


def linear(dtype: DType = DType.float32) -> GraphPart:
    weights = [
        TensorProto(name=name, dims=dims, data_type=dtype.onnx, data_location=TensorProto.EXTERNAL)
        for name, dims in (("l.weight", [4, 3]), ("l.bias", [4]))
    ]
    nodes = [
        helper.make_node("Cast", ["l.weight"], ["w"], to=TensorProto.FLOAT),
        helper.make_node("Cast", ["l.bias"], ["b"], to=TensorProto.FLOAT),
        helper.make_node("Gemm", ["x", "w", "b"], ["y"], transB=1),
    ]
    values = [helper.make_tensor_value_info(spec.name, spec.dtype.onnx, spec.shape) for spec in (X, Y)]
    graph = helper.make_graph(nodes, "g", values[:1], values[1:], weights)
    return GraphPart(helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 21)]), (X,), (Y,))


def run(stored: StoredBundle) -> Any:
    return ort.InferenceSession(stored.graph_path, providers=["CPUExecutionProvider"]).run(None, {"x": ROWS})[0]


@pytest.fixture
def cache(tmp_path: Path, patience: StoreOptions) -> Cache:
    return Cache(tmp_path / "cache", CacheOptions(store=patience, pause_seconds=0.01))


def checkpoint(tmp_path: Path, **tensors: Any) -> bytes:
    write_safetensors(tmp_path / "up.safetensors", tensors or {"l.weight": W, "l.bias": B})
    return (tmp_path / "up.safetensors").read_bytes()


def test_weights_at_a_url_are_written_beside_the_graph(site: Any, cache: Cache, tmp_path: Path) -> None:
    url = site.put("w.safetensors", checkpoint(tmp_path))
    stored = Bundle("m", {"main": linear()}, url).write(tmp_path / "m", cache=cache)
    assert sorted(os.listdir(stored.path)) == ["bundle.json", "model.onnx", "weights.safetensors"]
    np.testing.assert_array_equal(run(stored), ROWS @ W.T + B)
    assert make_local(stored) is stored


def test_weights_by_reference_are_fetched_once(site: Any, cache: Cache, tmp_path: Path) -> None:
    url = site.put("w.safetensors", checkpoint(tmp_path))
    stored = Bundle("m", {"main": linear()}, url).write(tmp_path / "m", by_reference=True, cache=cache)
    assert sorted(os.listdir(stored.path)) == ["bundle.json", "model.onnx"]
    assert stored.absent == ("w.safetensors",)
    assert stored.manifest.files["w.safetensors"].url == url
    stored.verify()

    elsewhere = Cache(tmp_path / "other", cache.options)
    site.requests.clear()
    local = make_local(stored, elsewhere)
    np.testing.assert_array_equal(run(local), ROWS @ W.T + B)
    local.verify()
    assert site.downloads == 1
    site.requests.clear()
    assert make_local(open_bundle(tmp_path / "m"), Cache(tmp_path / "other")).path == local.path
    assert site.requests == []
    assert (local.path / "w.safetensors").stat().st_nlink == 2


def test_s3_from_a_module_to_an_answer(bucket: Any, cache: Cache, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("TIDEMILL_CACHE", str(cache.root))
    bucket.put_object(Key="lab/w.safetensors", Body=checkpoint(tmp_path, weight=W, bias=B))
    module = nn.Linear(3, 4, DType.float32, DeviceRef.CPU(), has_bias=True)
    x = TensorType(DType.float32, ["batch", 3], DeviceRef.CPU())
    bundle = module.bundle(x, weights="s3://models/lab/w.safetensors", input_names=["x"])
    for options in ({}, {"by_reference": True}):
        stored = bundle.write(tmp_path / "linear" / "1", **options)
        np.testing.assert_allclose(run(make_local(stored)), ROWS @ W.T + B)


def test_referenced_shards_stay_shards(site: Any, cache: Cache, tmp_path: Path) -> None:
    for name, tensors in {"1": {"model.l.weight": W}, "2": {"model.l.bias": B}}.items():
        site.put(f"m/{name}.safetensors", checkpoint(tmp_path, **tensors))
    index = {"weight_map": {"model.l.weight": "1.safetensors", "model.l.bias": "2.safetensors"}}
    url = site.put("m/x.safetensors.index.json", json.dumps(index).encode())
    bundle = Bundle("m", {"main": linear()}, url, rename={"**": "model.**"})
    stored = bundle.write(tmp_path / "m", by_reference=True, cache=cache)
    assert stored.absent == ("1.safetensors", "2.safetensors")
    assert stored.weights_path is None
    np.testing.assert_array_equal(run(make_local(stored, cache)), ROWS @ W.T + B)


def _changed(site: Any, _: Path) -> None:
    site.files["/w.safetensors"] = site.files["/w.safetensors"][:-1] + b"\xff"


def _gone(site: Any, _: Path) -> None:
    site.files.clear()


def _forbidden(site: Any, _: Path) -> None:
    site.fault = lambda handler: handler.send_error(403) or True


def _graph_changed(_: Any, folder: Path) -> None:
    content = (folder / "model.onnx").read_bytes()
    (folder / "model.onnx").write_bytes(content.replace(b"Gemm", b"Gemn"))


@pytest.mark.parametrize(
    ("damage", "error", "text"),
    [
        (_changed, InvalidBundle, r"w\.safetensors has sha256 \w+, expected \w+; nothing of it was kept"),
        (_gone, LoadFailed, r"w\.safetensors does not exist"),
        (_forbidden, LoadFailed, r"may not be read: .*403 Forbidden"),
        (_graph_changed, InvalidBundle, r"model\.onnx has not the sha256"),
    ],
)
def test_what_cannot_be_fetched_whole_is_refused(
    site: Any, cache: Cache, tmp_path: Path, damage: Callable[[Any, Path], None], error: type[Exception], text: str
) -> None:
    url = site.put("w.safetensors", checkpoint(tmp_path))
    stored = Bundle("m", {"main": linear()}, url).write(tmp_path / "m", by_reference=True, cache=cache)
    damage(site, stored.path)
    other = Cache(tmp_path / "other", cache.options)
    with pytest.raises(error, match=text) as caught:
        make_local(stored, other)
    assert str(stored.path) in str(caught.value)
    assert not (other.root / "folders").exists() or list((other.root / "folders").glob("[!.]*")) == []


def test_what_is_used_is_not_evicted(site: Any, cache: Cache, tmp_path: Path) -> None:
    url = site.put("w.safetensors", checkpoint(tmp_path))
    stored = Bundle("m", {"main": linear()}, url).write(tmp_path / "m", by_reference=True, cache=cache)
    local = make_local(stored, cache)
    (blob,) = cache.blobs()
    assert not cache.remove(blob.name)
    path = local.path
    del local
    assert cache.remove(blob.name)
    assert not path.exists()
    np.testing.assert_array_equal(run(make_local(stored, cache)), ROWS @ W.T + B)


@pytest.mark.parametrize(
    ("weights", "options", "text"),
    [
        ({"l.weight": W}, {}, "weights by reference take a URL"),
        ("w.safetensors", {}, "weights by reference take a URL"),
        ("https://h/w.safetensors?sig=1", {}, "https://h/w.safetensors was given with a signature"),
    ],
)
def test_what_cannot_be_referred_to(tmp_path: Path, weights: Any, options: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        Bundle("m", {"main": linear()}, weights, **options).write(tmp_path / "m", by_reference=True)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("url", ["file:///etc/passwd", "ftp://h/w", "s3://"])
def test_a_manifest_with_a_url_that_leads_nowhere(site: Any, cache: Cache, tmp_path: Path, url: str) -> None:
    here = site.put("w.safetensors", checkpoint(tmp_path))
    stored = Bundle("m", {"main": linear()}, here).write(tmp_path / "m", by_reference=True, cache=cache)
    text = stored.manifest.to_json().replace(here, url)
    with pytest.raises(InvalidBundle, match=r"files\.w\.safetensors\.url: "):
        BundleManifest.from_json(text)


def test_a_dtype_that_was_asked_for_is_made_once_and_recorded(tmp_path: Path) -> None:
    weights = {"l.weight": W, "l.bias": B, "other": B}
    with pytest.raises(ValueError, match="dtype float32, expected float16"):
        Bundle("m", {"main": linear(DType.float16)}, weights).write(tmp_path / "m")
    stored = Bundle("m", {"main": linear(DType.float16)}, weights, dtype="float16").write(tmp_path / "m")
    assert stored.manifest.converted == {"float32": "float16"}
    assert open_bundle(stored.path).manifest == stored.manifest
    np.testing.assert_array_equal(run(stored), ROWS @ W.T + B)
    with pytest.raises(ValueError, match="cannot be converted to 'int8'"):
        Bundle("m", {"main": linear()}, weights, dtype="int8")


def test_a_reference_cannot_be_converted(site: Any, cache: Cache, tmp_path: Path) -> None:
    url = site.put("w.safetensors", checkpoint(tmp_path))
    bundle = Bundle("m", {"main": linear(DType.float16)}, url, dtype=DType.float16)
    with pytest.raises(ValueError, match="by reference cannot be converted"):
        bundle.write(tmp_path / "m", by_reference=True, cache=cache)


def test_rules_of_model_yaml(tmp_path: Path) -> None:
    (tmp_path / "m").mkdir()
    rules = {"l.*": "enc.dense.*", "l.bias": "enc.wrong"}
    (tmp_path / "m" / "model.yaml").write_text(yaml.safe_dump({"rename": rules}))
    weights = {"enc.dense.weight": W, "enc.b": B}
    stored = Bundle("m", {"main": linear()}, weights, rename={"l.bias": "enc.b", "l.weight": "l.weight"}).write(
        tmp_path / "m" / "1"
    )
    np.testing.assert_array_equal(run(stored), ROWS @ W.T + B)


def test_a_prefix_is_suggested_and_the_report_says_what_is_used(tmp_path: Path) -> None:
    weights = {"model.l.weight": W, "model.l.bias": B, "model.position_ids": B}
    with pytest.raises(ValueError, match=r"stands behind 'model\.', see rename=\{'\*\*': 'model\.\*\*'\}"):
        Bundle("m", {"main": linear()}, weights).write(tmp_path / "m")
    bundle = Bundle("m", {"main": linear()}, weights, rename={"**": "model.**"})
    assert str(bundle.report()) == "2 weights used; 1 unexpected: model.position_ids"
    np.testing.assert_array_equal(run(bundle.write(tmp_path / "m")), ROWS @ W.T + B)


def test_a_server_needs_neither_onnx_nor_pydantic_nor_a_store_to_start_again(
    site: Any, cache: Cache, tmp_path: Path
) -> None:
    url = site.put("w.safetensors", checkpoint(tmp_path))
    stored = Bundle("m", {"main": linear()}, url).write(tmp_path / "m", by_reference=True, cache=cache)
    program = (
        "import sys; from tidemill.bundle import make_local, open_bundle; make_local(open_bundle(sys.argv[1])); "
        "print({'onnx', 'pydantic', 'yaml', 'obstore', 'rich', 'gguf'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, stored.path],
        env=os.environ | {"TIDEMILL_CACHE": str(cache.root)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "set()"


@pytest.mark.skipif("TIDEMILL_LARGE_TESTS" not in os.environ, reason="writes 4.4 GB; set TIDEMILL_LARGE_TESTS")
def test_more_than_two_gigabytes(tmp_path: Path) -> None:
    rows = 550_000_000
    name = b"l.weight"
    header = json.dumps({name.decode(): {"dtype": "F32", "shape": [rows], "data_offsets": [0, rows * 4]}}).encode()
    header += b" " * (-len(header) % 8)
    with (tmp_path / "w.safetensors").open("wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        file.truncate(file.tell() + rows * 4)
    node = helper.make_node("Gather", ["l.weight", "x"], ["y"])
    weight = TensorProto(name="l.weight", dims=[rows], data_type=1, data_location=TensorProto.EXTERNAL)
    infos = [helper.make_tensor_value_info("x", TensorProto.INT64, ["n"]), helper.make_tensor_value_info("y", 1, ["n"])]
    graph = helper.make_graph([node], "g", infos[:1], infos[1:], [weight])
    model = helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 21)])
    specs = TensorSpec("x", DType.int64, ("n",)), TensorSpec("y", DType.float32, ("n",))
    stored = Bundle("big", {"main": GraphPart(model, specs[:1], specs[1:])}, tmp_path / "w.safetensors").write(
        tmp_path / "big"
    )
    onnx.checker.check_model(stored.graph_path, full_check=True)
    session = ort.InferenceSession(stored.graph_path, providers=["CPUExecutionProvider"])
    assert session.run(None, {"x": np.array([0, rows - 1])})[0].tolist() == [0, 0]
