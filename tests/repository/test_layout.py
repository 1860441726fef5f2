from __future__ import annotations

from pathlib import Path

import pytest

from tidemill.errors import ConfigError
from tidemill.repository.layout import OneModel, find_folder, name_fault, scan, scan_model


def put(folder: Path, *files: str) -> Path:
    for file in files:
        path = folder / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
    return folder


def test_versions_are_numbered_folders_that_hold_a_bundle(tmp_path: Path) -> None:
    put(tmp_path / "m", "10/bundle.json", "2/model.onnx", "3/weights.safetensors", "04/bundle.json", "x/bundle.json")
    put(tmp_path / "m", "-1/bundle.json", "1e3/bundle.json", ".5.tmp/bundle.json", "٣/bundle.json")
    (model,) = scan([tmp_path])
    assert list(model.versions.items()) == [(2, tmp_path / "m/2"), (10, tmp_path / "m/10")]
    assert model.fault == ""


def test_folders_without_a_version_or_configuration_are_no_models(tmp_path: Path) -> None:
    put(tmp_path, "docs/readme.md", ".git/1/bundle.json", "file.txt", "derived/model.yaml", "b/1/bundle.json")
    assert [model.name for model in scan([tmp_path])] == ["b", "derived"]


def test_a_half_copied_version_is_not_picked_up_and_said(tmp_path: Path) -> None:
    put(tmp_path / "m", "1/weights.safetensors")
    (model,) = scan([tmp_path])
    assert not model.versions
    assert "none of [1] has a bundle.json" in model.fault


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("", "empty"),
        ("..", "dot"),
        (".hidden", "dot"),
        ("a/b", "slashes"),
        ("a\\b", "slashes"),
        ("a\0b", "control"),
        ("n" * 201, "201"),
    ],
)
def test_names_that_no_model_may_have(name: str, part: str) -> None:
    assert part in name_fault(name)


@pytest.mark.parametrize("name", ["resnet-50", "a.b_c", "n" * 200, "modèle", "with space", "con:1"])
def test_names_that_a_model_may_have(name: str) -> None:
    assert name_fault(name) == ""


def test_a_link_out_of_the_repository_is_a_fault(tmp_path: Path) -> None:
    put(tmp_path / "elsewhere", "1/bundle.json")
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "m").symlink_to(tmp_path / "elsewhere")
    (model,) = scan([tmp_path / "models"])
    assert "symbolic link out of its repository" in model.fault
    assert not model.versions


def test_a_version_that_links_out_of_its_model_is_not_picked_up(tmp_path: Path) -> None:
    put(tmp_path / "elsewhere", "bundle.json")
    put(tmp_path / "m", "1/bundle.json")
    (tmp_path / "m" / "2").symlink_to(tmp_path / "elsewhere")
    assert list(scan_model(tmp_path / "m").versions) == [1]


def test_what_is_no_repository_is_told_apart(tmp_path: Path) -> None:
    put(tmp_path / "m", "1/bundle.json")
    with pytest.raises(ConfigError, match="not a folder"):
        scan([tmp_path / "none"])
    with pytest.raises(ConfigError, match="is a bundle"):
        scan([tmp_path / "m" / "1"])
    with pytest.raises(ConfigError, match="is a model's folder; serve the folder above it"):
        scan([tmp_path / "m"])


def test_one_model_in_two_repositories_is_refused(tmp_path: Path) -> None:
    put(tmp_path, "a/m/1/bundle.json", "b/m/1/bundle.json")
    with pytest.raises(ConfigError, match="in two places"):
        scan([tmp_path / "a", tmp_path / "b"])


@pytest.mark.parametrize("files", [["2/bundle.json", "2/weights.safetensors", "model.yaml"], ["2/model.onnx"]])
def test_a_models_folder_can_stand_for_a_repository(tmp_path: Path, files: list[str]) -> None:
    one = OneModel("resnet", put(tmp_path / "mnt", *files))
    (model,) = scan([one])
    assert (model.name, dict(model.versions), model.fault) == ("resnet", {2: tmp_path / "mnt" / "2"}, "")
    assert find_folder([one], "resnet") == model
    assert find_folder([one], "mnt") is None


@pytest.mark.parametrize("file", ["bundle.json", "model.onnx"])
def test_the_files_of_one_version_can_stand_for_a_repository(tmp_path: Path, file: str) -> None:
    (model,) = scan([OneModel("resnet", put(tmp_path, file))])
    assert (model.name, dict(model.versions), model.path) == ("resnet", {1: tmp_path}, tmp_path)


def test_one_model_that_is_not_there_or_has_a_name_twice_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"'resnet' is to come from .*nowhere, which is not a folder"):
        scan([OneModel("resnet", tmp_path / "nowhere")])
    put(tmp_path / "repository", "resnet/1/bundle.json")
    put(tmp_path / "mnt", "model.onnx")
    with pytest.raises(ConfigError, match="in two places"):
        scan([tmp_path / "repository", OneModel("resnet", tmp_path / "mnt")])
    assert scan([OneModel("a/b", tmp_path / "mnt")])[0].fault
