"""Regions of shared memory: what may be registered, how long it lives, and what a hostile owner can do."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tidemill.errors import AlreadyExists, InvalidArgument, NotFound, TidemillError, TooLarge, Unsupported
from tidemill.protocol.types import RegionSlice, RequestedOutput
from tidemill.serving.shared_memory import SharedMemory

LIMIT = 1 << 16


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "object").write_bytes(bytes(range(64)))
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "object")
    os.mkfifo(tmp_path / "pipe")
    return tmp_path


@pytest.fixture
def memory(root: Path) -> Iterator[SharedMemory]:
    memory = SharedMemory(allowed=True, limit=LIMIT, root=root)
    yield memory
    memory.unregister()


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        (("", "object", 4), InvalidArgument, "1 to 255 characters"),
        (("n" * 256, "object", 4), InvalidArgument, "not 256"),
        (("r", "nothing", 4), InvalidArgument, "unable to open"),
        (("r", "", 4), InvalidArgument, "no shared memory object's name"),
        (("r", "..", 4), InvalidArgument, "no shared memory object's name"),
        (("r", "../secret", 4), InvalidArgument, "no shared memory object's name"),
        (("r", "/a/b", 4), InvalidArgument, "no shared memory object's name"),
        (("r", "//etc", 4), InvalidArgument, "no shared memory object's name"),
        (("r", "a\0b", 4), InvalidArgument, "no shared memory object's name"),
        (("r", "folder", 4), InvalidArgument, "folder"),
        (("r", "link", 4), InvalidArgument, "unable to open"),
        (("r", "pipe", 4), InvalidArgument, "no shared memory object"),
        (("r", "triton_python_backend_shm_region_1", 4), InvalidArgument, "reserved"),
        (("r", "object", 0), InvalidArgument, "byte_size 0"),
        (("r", "object", 65), InvalidArgument, "ends at byte 65, 'object' has 64 bytes"),
        (("r", "object", 60, 5), InvalidArgument, "ends at byte 65"),
        (("r", "object", 2**63, 2**63), InvalidArgument, "has 64 bytes"),
        (("taken", "object", 4), AlreadyExists, "registered already"),
    ],
)
def test_what_cannot_be_registered(memory: SharedMemory, arguments: Any, error: type[TidemillError], text: str) -> None:
    memory.register("taken", "object", 4)
    with pytest.raises(error, match=text):
        memory.register(*arguments)
    assert [region.name for region in memory.regions()] == ["taken"]


def test_it_is_off_unless_allowed(root: Path) -> None:
    memory = SharedMemory(allowed=False, limit=LIMIT, root=root)
    with pytest.raises(Unsupported, match="system_shared_memory: true"):
        memory.register("r", "object", 4)
    with pytest.raises(Unsupported):
        memory.reader()(RegionSlice("r", 4))
    assert memory.regions() == []
    memory.unregister()


@pytest.mark.parametrize("key", ["object", "/object"])
def test_reading_and_writing_stay_within_the_region(memory: SharedMemory, root: Path, key: str) -> None:
    memory.register("r", key, 16, 8)
    assert bytes(memory.reader()(RegionSlice("r", 4, 2))) == bytes([10, 11, 12, 13])
    for piece in (RegionSlice("r", 17), RegionSlice("r", 4, 13), RegionSlice("r", 2**62, 2**62)):
        with pytest.raises(InvalidArgument, match="has 16 bytes"):
            memory.reader()(piece)
        with pytest.raises(InvalidArgument, match="has 16 bytes"):
            memory.hold([RequestedOutput("y", region=piece)])
    held = memory.hold([RequestedOutput("y", region=RegionSlice("r", 12, 4)), RequestedOutput("z")])
    assert held["y"].write(np.float32([1, 2]), "y") == RegionSlice("r", 8, 4)
    assert (root / "object").read_bytes()[12:20] == np.float32([1, 2]).tobytes()
    with pytest.raises(InvalidArgument, match="output 'y' has 16 bytes, shared_memory_byte_size is 12"):
        held["y"].write(np.float32([1, 2, 3, 4]), "y")


def test_a_region_outlives_its_registration_for_requests_in_flight(memory: SharedMemory, root: Path) -> None:
    memory.register("r", "object", 16)
    held = memory.hold([RequestedOutput("y", region=RegionSlice("r", 8))])
    memory.unregister("r")
    with pytest.raises(NotFound, match="unable to find shared memory region 'r'"):
        memory.reader()(RegionSlice("r", 4))
    held["y"].write(np.float32([7, 8]), "y")
    assert (root / "object").read_bytes()[:8] == np.float32([7, 8]).tobytes()


def test_an_owner_who_shrinks_the_object_harms_only_itself(memory: SharedMemory, root: Path) -> None:
    memory.register("r", "object", 64)
    held = memory.hold([RequestedOutput("y", region=RegionSlice("r", 8, 32))])
    os.truncate(root / "object", 16)
    with pytest.raises(InvalidArgument, match="has shrunk"):
        memory.reader()(RegionSlice("r", 64))
    with pytest.raises(InvalidArgument, match="has shrunk"):
        held["y"].write(np.float32([7, 8]), "y")
    assert (root / "object").stat().st_size == 16


def test_one_request_reads_no_more_than_one_request_may_have(memory: SharedMemory, root: Path) -> None:
    os.truncate(root / "object", 1 << 40)
    memory.register("r", "object", 1 << 40)
    read = memory.reader()
    read(RegionSlice("r", LIMIT - 1))
    with pytest.raises(TooLarge, match="max_request_bytes"):
        read(RegionSlice("r", 2))
    with pytest.raises(TooLarge):
        memory.reader()(RegionSlice("r", 1 << 40))


def test_files_are_closed_when_nobody_needs_them(memory: SharedMemory) -> None:
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    for number in range(50):
        memory.register(f"r{number}", "object", 4)
    for _ in range(50):
        with pytest.raises(InvalidArgument):
            memory.register("too large", "object", 65)
    memory.unregister()
    assert len(os.listdir("/proc/self/fd")) == before


def test_the_number_of_regions_is_limited(memory: SharedMemory) -> None:
    for number in range(1024):
        memory.register(f"r{number}", "object", 4)
    with pytest.raises(TooLarge, match="1024 regions"):
        memory.register("one more", "object", 4)
