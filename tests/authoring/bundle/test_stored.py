from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tidemill.bundle.manifest import BundleManifest, FileEntry, GraphEntry
from tidemill.bundle.stored import open_bundle
from tidemill.errors import InvalidBundle

# A model with a graph's name, and a file without tensors.
FILES = {"model.onnx": b"\x3a\x03\x12\x01g", "weights.safetensors": b"\x08" + bytes(7) + b"{}     \n"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "m"
    folder.mkdir()
    for name, content in FILES.items():
        (folder / name).write_bytes(content)
    entries = {name: FileEntry(hashlib.sha256(content).hexdigest(), len(content)) for name, content in FILES.items()}
    manifest = BundleManifest("m", {"main": GraphEntry("model.onnx", (), ())}, entries, 21, "weights.safetensors")
    (folder / "bundle.json").write_text(manifest.to_json())
    return folder


def test_opens_and_verifies(folder: Path) -> None:
    stored = open_bundle(str(folder))
    stored.verify()
    assert stored.graph_path == folder / "model.onnx"
    assert stored.weights_path == folder / "weights.safetensors"


def test_other_bytes_of_equal_size_are_found_by_verify_only(folder: Path) -> None:
    for name, content in FILES.items():
        (folder / name).write_bytes(content.replace(b"g", b"G").replace(b"\n", b" "))
    with pytest.raises(InvalidBundle, match=r"model.onnx has sha256 .*; weights.safetensors has sha256"):
        open_bundle(folder).verify()


def _link_out(folder: Path) -> None:
    outside = folder.parent / "secret"
    outside.write_bytes(b"graph")
    (folder / "model.onnx").unlink()
    (folder / "model.onnx").symlink_to(outside)


def _link_nowhere(folder: Path) -> None:
    (folder / "model.onnx").unlink()
    (folder / "model.onnx").symlink_to(folder.parent / "absent")


def _loop(folder: Path) -> None:
    (folder / "model.onnx").unlink()
    (folder / "model.onnx").symlink_to("model.onnx")


def _fifo(folder: Path) -> None:
    (folder / "model.onnx").unlink()
    os.mkfifo(folder / "model.onnx")


def _manifest_out(folder: Path) -> None:
    (folder / "bundle.json").rename(folder.parent / "bundle.json")
    (folder / "bundle.json").symlink_to(folder.parent / "bundle.json")


@pytest.mark.parametrize(
    ("damage", "text"),
    [
        (lambda folder: (folder / "bundle.json").unlink(), "no bundle, since there is no bundle.json"),
        (lambda folder: (folder / "bundle.json").write_text("{"), "bundle.json is not JSON"),
        (lambda folder: (folder / "model.onnx").unlink(), "model.onnx belongs to the bundle and is missing"),
        (
            lambda folder: (folder / "model.onnx").write_bytes(b"gra"),
            "has 3 bytes, bundle.json says 5; is the",
        ),
        (_link_out, "'model.onnx' leads out of the bundle's folder"),
        (_link_nowhere, "'model.onnx' leads out of the bundle's folder"),
        (_loop, "model.onnx belongs to the bundle and is missing or unreadable"),
        (_manifest_out, "'bundle.json' leads out of the bundle's folder"),
        (_fifo, "model.onnx is not a regular file"),
    ],
)
def test_damaged_folders_are_refused(folder: Path, damage: Callable[[Path], object], text: str) -> None:
    damage(folder)
    with pytest.raises(InvalidBundle, match=text) as caught:
        open_bundle(folder)
    assert str(folder) in str(caught.value)


def test_links_within_the_folder_and_to_the_folder_are_fine(folder: Path, tmp_path: Path) -> None:
    (folder / "data").mkdir()
    (folder / "model.onnx").rename(folder / "data" / "model.onnx")
    (folder / "model.onnx").symlink_to("data/model.onnx")
    (tmp_path / "link").symlink_to(folder)
    open_bundle(tmp_path / "link").verify()
