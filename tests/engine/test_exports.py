"""What one session exports another takes without compiling, or says what is wrong."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import onnx
import pytest

from tidemill.engine import InferenceSession
from tidemill.errors import MissingArtifact, TidemillError

X = np.arange(8, dtype=np.float32).reshape(2, 4)


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "compiled"


def test_an_exported_graph_runs_like_the_original(linear, weight, folder):
    registry = {"l_weight": weight * 2}
    exported = InferenceSession(export=folder).load(linear, registry)
    taken = InferenceSession(precompiled=str(folder)).load(linear, registry)

    for model in (exported, taken):
        np.testing.assert_array_equal(model(X)[0].to_numpy(), X * 2)
    assert sorted(path.suffix for path in folder.iterdir() if path.name != ".lock") == [".json", ".onnx"]
    taken.reload({"l_weight": weight * 3})
    np.testing.assert_array_equal(taken(X)[0].to_numpy(), X * 3)


def test_files_are_named_by_graph_and_content(linear, weight, folder):
    session = InferenceSession(export=folder)
    session.load(replace(linear, name="a/b:c d"), {"l_weight": weight})
    session.load(linear, {"l_weight": weight})
    session.load(linear, {"l_weight": weight})

    manifest = json.loads((folder / "manifest.json").read_text())
    names = {entry["graph"]: file for file, entry in manifest["artifacts"].items()}
    assert list(names) == ["a/b:c d", "enc"]
    assert names["a/b:c d"].startswith("a_b_c_d-")
    assert sorted(names.values()) == sorted(path.name for path in folder.glob("*.onnx"))


def test_where_a_line_was_written_does_not_matter(linear, weight, folder):
    InferenceSession(export=folder).load(linear, {"l_weight": weight})
    moved = onnx.load_model_from_string(linear.content)
    moved.graph.node[0].metadata_props.add(key="source", value="app:99")

    InferenceSession(precompiled=folder).load(replace(linear, content=moved.SerializeToString()), {"l_weight": weight})


def _other_version(folder):
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps(manifest | {"onnxruntime": "1.0.0"}))


def _flip(folder):
    (file,) = folder.glob("*.onnx")
    file.write_bytes(file.read_bytes()[:-1] + b"?")


@pytest.mark.parametrize(
    ("damage", "text"),
    [
        (lambda folder: (folder / "manifest.json").unlink(), "has no manifest.json, so it holds no exported graphs"),
        (lambda folder: (folder / "manifest.json").write_text("{"), "manifest.json is not JSON"),
        (lambda folder: (folder / "manifest.json").write_text("[]"), "of another tidemill"),
        (_other_version, "compiled by ONNX Runtime 1.0.0, this is"),
        (_flip, "is damaged; export the graph again"),
        (lambda folder: next(folder.glob("*.onnx")).unlink(), "cannot be read"),
    ],
)
def test_what_cannot_be_taken_is_never_compiled(linear, weight, folder, damage, text):
    InferenceSession(export=folder).load(linear, {"l_weight": weight})
    damage(folder)

    with pytest.raises(MissingArtifact, match=text):
        InferenceSession(precompiled=folder).load(linear, {"l_weight": weight})


def test_another_graph_is_not_taken_for_it(linear, weight, folder, model_bytes):
    InferenceSession(export=folder).load(linear, {"l_weight": weight})
    session = InferenceSession(precompiled=folder)
    twice = model_bytes(
        "g (float[batch, 4] x, float[4, 4] l_weight) => (float[batch, 4] y) { h = MatMul(x, l_weight) y = Add(h, h) }"
    )

    with pytest.raises(MissingArtifact, match="has graph 'enc', but not in this form"):
        session.load(replace(linear, content=twice), {"l_weight": weight})
    with pytest.raises(MissingArtifact, match=r"has no graph 'dec' .* it has enc"):
        session.load(replace(linear, name="dec"), {"l_weight": weight})


def test_an_empty_folder_is_named(linear, weight, tmp_path):
    with pytest.raises(MissingArtifact, match=r"has no manifest\.json") as caught:
        InferenceSession(precompiled=tmp_path).load(linear, {"l_weight": weight})
    assert isinstance(caught.value, TidemillError)


def test_a_session_takes_or_writes(tmp_path):
    with pytest.raises(ValueError, match="not both"):
        InferenceSession(precompiled=tmp_path, export=tmp_path)
