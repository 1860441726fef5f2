from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from tidemill.bundle.manifest import BundleManifest, FileEntry, GraphEntry
from tidemill.dtype import DType
from tidemill.errors import InvalidBundle
from tidemill.protocol.types import TensorSpec

X = TensorSpec("x", DType.float32, ("batch", 5, ""))
Y = TensorSpec("y", DType.bfloat16, ("batch",))
DIGEST = "0" * 64
MANIFEST = BundleManifest(
    name="mlp",
    graphs={"main": GraphEntry("model.onnx", (X,), (Y,))},
    files={"model.onnx": FileEntry(DIGEST, 10), "weights.safetensors": FileEntry(DIGEST, 20)},
    opset=21,
    weights_file="weights.safetensors",
    tied={"head.weight": "embed.weight"},
    source="models.MLP",
    created_with={"tidemill": "1.0"},
)


def changed(path: str, value: Any) -> str:
    """The manifest's text with one field set; `...` removes it."""
    fields = json.loads(MANIFEST.to_json())
    *parents, last = [int(step) if step.isdigit() else step for step in path.split("/")]
    place = fields
    for step in parents:
        place = place[step]
    if value is ...:
        del place[last]
    else:
        place[last] = value
    return json.dumps(fields)


def test_text_and_back() -> None:
    assert BundleManifest.from_json(MANIFEST.to_json()) == MANIFEST
    assert MANIFEST.to_json() == MANIFEST.to_json()
    bare = BundleManifest("m", {"main": GraphEntry("model.onnx", (), ())}, {"model.onnx": FileEntry(DIGEST, 0)}, 21)
    assert BundleManifest.from_json(bare.to_json()) == bare


@pytest.mark.parametrize(
    ("path", "value", "text"),
    [
        ("format", 2, "has format 2; this tidemill reads format 1"),
        ("format", ..., "has format None"),
        ("name", ..., "name is missing"),
        ("name", 7, "name is 7, expected a string"),
        ("opset", True, "opset is True, expected a whole number"),
        ("opset", -1, "opset is -1, expected a whole number"),
        ("weight_file", "w", "unknown field weight_file, did you mean 'weights_file'"),
        ("graphs", {}, "graphs is empty"),
        ("graphs", [], "graphs is .*, expected an object"),
        ("graphs/main/file", "other.onnx", "graphs.main.file is 'other.onnx', which is not listed in files"),
        ("graphs/main/inputs", {}, "graphs.main.inputs is .*, expected a list"),
        ("graphs/main/inputs/0/datatype", "FP31", r"graphs.main.inputs\[0\].datatype: unknown datatype 'FP31'"),
        ("graphs/main/inputs/0/shape", [1.5], r"graphs.main.inputs\[0\].shape\[0\] is 1.5"),
        ("graphs/main/inputs/0/shape", [-1], r"shape\[0\] is -1, expected a whole number"),
        ("graphs/main/outputs/0/dtype", "FP32", "unknown field graphs.main.outputs.*did you mean 'datatype'"),
        ("weights_file", "absent", "weights_file is 'absent', which is not listed"),
        ("files/model.onnx/sha256", "xyz", "files.model.onnx.sha256 is 'xyz', expected 64 lower-case hex digits"),
        ("files/model.onnx/size", "1", "files.model.onnx.size is '1'"),
        ("tied/a", 1, "tied.a is 1, expected a string"),
    ],
)
def test_wrong_fields_are_named(path: str, value: Any, text: str) -> None:
    with pytest.raises(InvalidBundle, match=f"^bundle.json.*{text}"):
        BundleManifest.from_json(changed(path, value))


@pytest.mark.parametrize(
    "name", ["../secret", "/etc/passwd", "a/../b", "a//b", "", ".", ".hidden", "a\0b", "a\\b", "a/", "bundle.json"]
)
def test_file_names_stay_in_the_folder(name: str) -> None:
    fields = json.loads(MANIFEST.to_json())
    fields["files"][name] = fields["files"]["model.onnx"]
    with pytest.raises(InvalidBundle, match="expected the path of a file inside the bundle's folder"):
        BundleManifest.from_json(json.dumps(fields))


@pytest.mark.parametrize("text", ["", "{", "[]", "null", b"\xff", "[" * 100_000])
def test_not_a_manifest(text: str | bytes) -> None:
    with pytest.raises(InvalidBundle, match=r"^bundle\.json"):
        BundleManifest.from_json(text)


def test_names_of_a_signature_are_unique() -> None:
    with pytest.raises(InvalidBundle, match=r"graphs\.main\.inputs names 'x' twice"):
        replace(MANIFEST, graphs={"main": GraphEntry("model.onnx", (X, X), (Y,))})


def test_the_main_graph_is_called_main_or_is_the_only_one() -> None:
    graph = MANIFEST.main
    assert replace(MANIFEST, graphs={"encoder": graph}).main is graph
    with pytest.raises(InvalidBundle, match="no graph 'main'; name one of encoder, decoder"):
        _ = replace(MANIFEST, graphs={"encoder": graph, "decoder": graph}).main


@pytest.mark.parametrize("given", [True, 1.0, "1", None, 2])
def test_only_the_number_of_the_format_is_the_format(given: Any) -> None:
    with pytest.raises(InvalidBundle, match="this tidemill reads format 1"):
        BundleManifest.from_json(changed("format", given))


def test_a_key_that_is_there_twice_is_refused() -> None:
    text = MANIFEST.to_json().replace('"opset": 21', '"opset": 21, "opset": 22')
    with pytest.raises(InvalidBundle, match="has the key 'opset' twice"):
        BundleManifest.from_json(text)


@pytest.mark.parametrize(
    "path", ["name", "source", "weights_file", "graphs/main/inputs/0/name", "tied/head.weight", "created_with/tidemill"]
)
def test_text_that_would_confuse_a_terminal_is_refused(path: str) -> None:
    with pytest.raises(InvalidBundle) as refused:
        BundleManifest.from_json(changed(path, "a\x1b[2Jb"))
    assert "\x1b" not in str(refused.value)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("name", [["x" * 1000] * 1000]),
        ("x" * 100_000, 1),
        ("files/" + "." + "x" * 100_000, {"sha256": DIGEST, "size": 1}),
        ("graphs/main/file", "x" * 100_000),
        ("weights_file", "x" * 100_000),
        ("format", ["x"] * 10_000),
        ("files/model.onnx/url", "ftp://" + "x" * 100_000),
    ],
)
def test_messages_stay_short_whatever_the_file_says(path: str, value: Any) -> None:
    with pytest.raises(InvalidBundle) as refused:
        BundleManifest.from_json(changed(path, value))
    assert len(str(refused.value)) < 1000


def test_many_names_are_compared_in_no_time_to_speak_of() -> None:
    """50,000 of them took minutes when each was counted among all."""
    specs = [{"name": f"x{number}", "datatype": "FP32", "shape": []} for number in range(50_000)]
    assert len(BundleManifest.from_json(changed("graphs/main/inputs", specs)).main.inputs) == 50_000
