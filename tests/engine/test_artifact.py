"""Optimised graphs are made once, keep their weights in the bundle, and are thrown away when anything is wrong."""

from __future__ import annotations

import logging
import multiprocessing
from dataclasses import replace

import numpy as np
import onnx
import pytest
from elsewhere import load_with_artifacts

from tidemill.bundle import open_bundle
from tidemill.engine import Instance, InstanceOptions
from tidemill.engine.artifact import ArtifactCache
from tidemill.engine.artifact_key import artifact_key, cpu_kind
from tidemill.engine.session_options import SessionOptions
from tidemill.errors import InvalidBundle, LoadFailed, MissingArtifact

X = np.random.default_rng(1).standard_normal((2, 32)).astype(np.float32)


@pytest.fixture
def cache(tmp_path):
    return ArtifactCache(tmp_path / "artifacts")


def load(bundle, cache, **options):
    return Instance.open(bundle, InstanceOptions(threads=1, artifacts=cache, **options))


def files(cache):
    return sorted(path.name for path in cache.directory.glob("*.onnx"))


def test_the_second_load_takes_what_the_first_compiled(stack, cache):
    plain = Instance.open(stack, InstanceOptions(threads=1))
    first, second = load(stack, cache), load(stack, cache)

    assert [instance.artifact for instance in (plain, first, second)] == ["off", "compiled", "hit"]
    assert len(files(cache)) == 1
    for instance in (first, second):
        np.testing.assert_array_equal(instance.run({"x": X})["y"], plain.run({"x": X})["y"])


def test_weights_stay_in_the_bundle_and_nodes_tell_their_layer(stack, cache):
    load(stack, cache)

    (artifact,) = cache.directory.glob("*.onnx")
    model = onnx.load(artifact, load_external_data=False)
    places = {tensor.name: tensor.external_data[0].value for tensor in model.graph.initializer}
    assert places == dict.fromkeys(("w0", "w1", "w2"), "weights.safetensors")
    assert artifact.stat().st_size < 4096
    assert [node.name for node in model.graph.node if node.op_type == "Tanh"] == [f"layers.{n}.tanh" for n in range(3)]


def test_a_bundle_that_was_moved_keeps_its_artifact(stack, cache):
    load(stack, cache)
    moved = stack.path.rename(stack.path.with_name("2"))

    instance = load(open_bundle(moved), cache)

    assert instance.artifact == "hit"
    assert instance.run({"x": X})["y"].shape == (2, 32)


@pytest.mark.parametrize(
    ("damage", "text"),
    [
        (lambda path: path.write_bytes(path.read_bytes()[:-9]), "damaged"),
        (lambda path: path.write_bytes(path.read_bytes().replace(b"Tanh", b"Sinh")), "damaged"),
        (lambda path: path.write_bytes(b""), "damaged"),
    ],
    ids=["cut", "changed", "emptied"],
)
def test_a_damaged_artifact_is_made_again(stack, cache, damage, text, caplog):
    before = load(stack, cache).run({"x": X})["y"]
    (artifact,) = cache.directory.glob("*.onnx")
    whole = artifact.read_bytes()
    damage(artifact)

    with caplog.at_level(logging.WARNING, "tidemill.engine"):
        instance = load(stack, cache)

    assert instance.artifact == "compiled"
    assert text in caplog.text
    assert artifact.read_bytes() == whole
    np.testing.assert_array_equal(instance.run({"x": X})["y"], before)


def test_an_artifact_that_the_runtime_refuses_is_made_again(stack, cache, caplog):
    """It has the digest in its name, so it was written like that: by a faulty version, say."""
    import hashlib

    load(stack, cache)
    (artifact,) = cache.directory.glob("*.onnx")
    key, content = artifact.name.partition(".")[0], b"no model"
    artifact.rename(cache.directory / f"{key}.{hashlib.sha256(content).hexdigest()[:16]}.onnx").write_bytes(content)

    instance = load(stack, cache)

    assert instance.artifact == "compiled"
    assert "cannot be loaded" in caplog.text
    assert files(cache) == [artifact.name]


def test_strict_means_that_nothing_is_compiled(stack, cache):
    strict = replace(cache, strict=True)
    with pytest.raises(MissingArtifact, match="only compiled models may be loaded"):
        load(stack, strict)
    assert not cache.directory.exists()

    load(stack, cache)

    assert load(stack, strict).artifact == "hit"


def test_strict_leaves_a_damaged_artifact_for_who_may_write(stack, cache):
    load(stack, cache)
    (artifact,) = cache.directory.glob("*.onnx")
    artifact.write_bytes(b"")

    with pytest.raises(MissingArtifact):
        load(stack, replace(cache, strict=True))
    assert artifact.exists()


def test_a_key_follows_from_all_that_matters(stack, tmp_path):
    graph, options = stack.manifest.main, SessionOptions()
    key = artifact_key(stack, graph, options, "1.32.0")
    files = dict(stack.manifest.files)
    files["weights.safetensors"] = replace(files["weights.safetensors"], sha256="0" * 64)
    library = tmp_path / "ops.so"
    library.write_bytes(b"code")
    other_weights = replace(stack, manifest=replace(stack.manifest, files=files))

    keys = {
        key,
        artifact_key(other_weights, graph, options, "1.32.0"),
        artifact_key(stack, graph, options, "1.33.0"),
        artifact_key(stack, graph, replace(options, providers=("CUDAExecutionProvider",)), "1.32.0"),
        artifact_key(stack, graph, replace(options, custom_ops=(library,)), "1.32.0"),
        artifact_key(stack, graph, replace(options, provider_options={"a": {"b": "1"}}), "1.32.0"),
    }

    assert len(keys) == 6
    assert artifact_key(stack, graph, replace(options, threads=3, prepack=False), "1.32.0") == key
    stack.graph_path.write_bytes(stack.graph_path.read_bytes() + b"\x0a\x00")
    assert artifact_key(stack, graph, options, "1.32.0") not in keys


def test_the_kind_of_cpu_is_its_abilities():
    first = cpu_kind(lambda _: "processor : 0\nflags : sse avx2\nprocessor : 1\nflags : sse avx2\n")

    assert first == cpu_kind(lambda _: "flags\t: avx2 sse\nbogomips : 1")
    assert first != cpu_kind(lambda _: "flags : sse avx2 avx512f")
    assert cpu_kind(lambda _: None)


def test_a_graph_with_its_weights_inside_is_not_kept_twice(stack, cache, monkeypatch):
    monkeypatch.setattr("tidemill.engine.artifact._TOO_LARGE", 100)

    assert [load(stack, cache).artifact for _ in range(2)] == ["declined", "declined"]
    assert load(stack, replace(cache, strict=True)).artifact == "declined"


def test_processes_that_start_together_compile_once(stack, cache):
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    processes = [
        context.Process(target=load_with_artifacts, args=(stack.path, cache.directory, results)) for _ in range(3)
    ]
    for process in processes:
        process.start()
    found = [results.get(timeout=60) for _ in processes]
    for process in processes:
        process.join()

    assert set(found) <= {"compiled", "hit"}
    assert len(files(cache)) == 1


def test_a_broken_graph_fails_as_without_a_cache(stack, cache):
    stack.graph_path.write_bytes(b"\x0a\x05no")

    with pytest.raises(LoadFailed):
        load(stack, cache)


def test_a_bomb_is_refused_before_the_runtime_sees_it(stack, cache):
    model = onnx.load(stack.graph_path, load_external_data=False)
    layer = model.functions[0]
    for level in range(24):
        function = model.functions.add()
        function.CopyFrom(layer)
        function.name = f"bomb{level}"
        below = f"bomb{level - 1}" if level else "layer"
        del function.node[:]
        for source, target in (("x", "h"), ("h", "y")):
            function.node.append(onnx.helper.make_node(below, [source, "w"], [target], domain="f"))
        function.opset_import.add(domain="f", version=1)
    model.graph.node[0].op_type = "bomb23"
    stack.graph_path.write_bytes(model.SerializeToString())

    for artifacts in (None, cache):
        with pytest.raises(InvalidBundle, match="at most 200000 are loaded"):
            load(stack, artifacts)
