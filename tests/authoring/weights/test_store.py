from __future__ import annotations

from pathlib import Path

import pytest

from tidemill.weights import LocalStore, MemoryStore, WeightStore


@pytest.fixture(params=["memory", "local"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> WeightStore:
    files = {"b": b"0123456789", "a": b""}
    if request.param == "memory":
        return MemoryStore(files)
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    return LocalStore(tmp_path)


def test_lists_and_reads_ranges(store: WeightStore) -> None:
    assert store.list() == ["a", "b"]
    assert (store.size("a"), store.size("b")) == (0, 10)
    assert bytes(store.read("b", 2, 3)) == b"234"
    assert bytes(store.read("a", 0, 0)) == b""
    assert store.read("b", 0, 10).readonly


@pytest.mark.parametrize(("offset", "length"), [(8, 3), (-1, 2), (0, -1), (11, 0)])
def test_ranges_outside_are_refused(store: WeightStore, offset: int, length: int) -> None:
    with pytest.raises(EOFError, match="b has 10 bytes"):
        store.read("b", offset, length)


def test_a_missing_name_is_refused(store: WeightStore) -> None:
    with pytest.raises(FileNotFoundError, match="c"):
        store.size("c")
    with pytest.raises(FileNotFoundError, match="c"):
        store.read("c", 0, 1)


@pytest.mark.parametrize("name", ["../b", "/etc/passwd", "x/../../b", "", ".", "b\0"])
def test_local_names_stay_in_the_folder(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="must be a path inside"):
        LocalStore(tmp_path).size(name)
