"""A folder that is replaced as a whole, whoever looks or writes at the same time."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import numpy as np
import pytest

from tidemill.bundle.staging import staged_folder
from tidemill.weights.durable import exchange
from tidemill.weights.safetensors import open_safetensors, write_safetensors


def bundle(folder: Path, number: int) -> None:
    """As much of a bundle as replacing it asks for."""
    from tidemill.bundle.manifest import BundleManifest, GraphEntry
    from tidemill.bundle.stored import file_entry

    (folder / "model.onnx").write_bytes(b"")
    write_safetensors(folder / "weights.safetensors", {"w": np.full(1000, number, np.float32)})
    files = {name: file_entry(folder / name) for name in ("model.onnx", "weights.safetensors")}
    manifest = BundleManifest("m", {"main": GraphEntry("model.onnx", (), ())}, files, 21, "weights.safetensors")
    (folder / "bundle.json").write_text(manifest.to_json())


def put(target: Path, number: int) -> None:
    with staged_folder(target) as draft:
        bundle(draft, number)


def test_who_looks_finds_one_or_the_other_and_never_nothing(tmp_path: Path) -> None:
    target = tmp_path / "m"
    put(target, 0)
    stop, absent = threading.Event(), []

    def look() -> None:
        while not stop.is_set():
            if not (target / "bundle.json").is_file():
                absent.append(1)

    looker = threading.Thread(target=look)
    looker.start()
    for number in range(100):
        put(target, number)
    stop.set()
    looker.join()
    assert absent == []


def test_several_writers_leave_one_whole_folder(tmp_path: Path) -> None:
    target = tmp_path / "m"
    writers = [threading.Thread(target=put, args=(target, number)) for number in range(8)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    values = np.unique(open_safetensors(target / "weights.safetensors")["w"])
    assert len(values) == 1
    assert os.listdir(tmp_path) == ["m"]


def test_a_link_is_not_replaced_and_neither_is_what_it_leads_to(tmp_path: Path) -> None:
    put(tmp_path / "real", 1)
    (tmp_path / "m").symlink_to(tmp_path / "real")
    with pytest.raises(FileExistsError, match=r"is a symbolic link to .*real; write to where it leads"):
        put(tmp_path / "m", 2)
    assert (tmp_path / "m").is_symlink()
    assert open_safetensors(tmp_path / "real" / "weights.safetensors")["w"][0] == 1


def test_two_paths_change_places(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).mkdir()
        (tmp_path / name / name).touch()
    assert exchange(tmp_path / "a", tmp_path / "b")
    assert (tmp_path / "a" / "b").is_file()
    assert not exchange(tmp_path / "a", tmp_path / "nothing")
