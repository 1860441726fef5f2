from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save

from tidemill.weights import Checkpoint, LocalStore, MemoryStore, WeightStore

A, B = np.arange(3, dtype=np.float32), np.arange(4, dtype=np.int64)
SHARDS = {
    "one.safetensors": save({"a.weight": A}),
    "two.safetensors": save({"b.weight": B}),
    "w.safetensors.index.json": json.dumps(
        {"metadata": {}, "weight_map": {"a.weight": "one.safetensors", "b.weight": "two.safetensors"}}
    ).encode(),
}


def with_index(weight_map: object) -> MemoryStore:
    return MemoryStore(SHARDS | {"w.safetensors.index.json": json.dumps({"weight_map": weight_map}).encode()})


def write_shards(folder: Path) -> None:
    for name, content in SHARDS.items():
        (folder / name).write_bytes(content)


@pytest.fixture(params=["memory", "local"])
def shards(request: pytest.FixtureRequest, tmp_path: Path) -> WeightStore:
    if request.param == "memory":
        return MemoryStore(SHARDS)
    write_shards(tmp_path)
    return LocalStore(tmp_path)


@pytest.mark.parametrize("files", [["one.safetensors", "two.safetensors"], ["w.safetensors.index.json"]])
def test_shards_are_one_mapping(shards: WeightStore, files: list[str]) -> None:
    checkpoint = Checkpoint(shards, files)
    assert list(checkpoint) == ["a.weight", "b.weight"]
    assert len(checkpoint) == 2
    assert "b.weight" in checkpoint
    np.testing.assert_array_equal(checkpoint["b.weight"], B)
    assert checkpoint.entries["a.weight"].file == "one.safetensors"


def test_open_takes_a_file_an_index_or_a_folder(tmp_path: Path) -> None:
    write_shards(tmp_path)
    assert list(Checkpoint.open(tmp_path)) == list(Checkpoint.open(tmp_path / "w.safetensors.index.json"))
    assert list(Checkpoint.open(tmp_path / "one.safetensors")) == ["a.weight"]
    (tmp_path / "w.safetensors.index.json").unlink()
    with pytest.raises(ValueError, match=r"found one.safetensors, two.safetensors; name the file"):
        Checkpoint.open(tmp_path)


def test_rename() -> None:
    checkpoint = Checkpoint(MemoryStore(SHARDS), ["one.safetensors"], rename={"enc.w": "a.weight", "dec.w": "a.weight"})
    assert list(checkpoint) == ["enc.w", "dec.w"]
    np.testing.assert_array_equal(checkpoint["dec.w"], A)


@pytest.mark.parametrize(
    ("rename", "text"),
    [
        (
            {"x": "a.wieght", "y": "zzz"},
            "'x' .* 'a.wieght', .* did you mean 'a.weight'.; 'y' .* 'zzz', which is missing",
        ),
        ({"b.weight": "a.weight"}, "'b.weight' is renamed from 'a.weight' and also stands"),
    ],
)
def test_faulty_renames(rename: dict[str, str], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        Checkpoint(MemoryStore(SHARDS), ["one.safetensors", "two.safetensors"], rename=rename)


@pytest.mark.parametrize(
    ("weight_map", "text"),
    [
        ({}, "must have a 'weight_map'"),
        ([], "must have a 'weight_map'"),
        ({"a": 1}, "must have a 'weight_map'"),
        ({"a.weight": "../one.safetensors"}, "shards must be .safetensors files beside it"),
        ({"a.weight": "/etc/passwd"}, "shards must be .safetensors files beside it"),
        ({"a.weight": "one.pkl"}, "names 'one.pkl'"),
        ({"c": "one.safetensors", "d": "two.safetensors"}, "one.safetensors lacks 'c'; two.safetensors lacks 'd'"),
    ],
)
def test_b34_faulty_indices(weight_map: object, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        Checkpoint(with_index(weight_map), ["w.safetensors.index.json"])


def test_a_missing_shard_is_named() -> None:
    with pytest.raises(FileNotFoundError, match=r"three\.safetensors"):
        Checkpoint(with_index({"a": "three.safetensors"}), ["w.safetensors.index.json"])


def test_an_index_that_is_not_json() -> None:
    with pytest.raises(ValueError, match="is not JSON"):
        Checkpoint(MemoryStore({"w.index.json": b"{"}), ["w.index.json"])


def test_one_key_in_two_files() -> None:
    store = MemoryStore({"1.safetensors": save({"a": A}), "2.safetensors": save({"a": A})})
    with pytest.raises(ValueError, match=r"'a' stands in 1.safetensors and in 2.safetensors"):
        Checkpoint(store, ["1.safetensors", "2.safetensors"])


def test_unknown_name_suggests() -> None:
    with pytest.raises(KeyError, match=r"did you mean 'a\.weight'"):
        Checkpoint(MemoryStore(SHARDS), ["one.safetensors"])["a.weigth"]
