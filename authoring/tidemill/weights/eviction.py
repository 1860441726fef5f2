"""Which files of a cache have to go, and how they go; touches nothing that is locked by its user."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from tidemill.weights.lease import claim

__all__ = ["blobs_by_use", "drop_blob", "make_room", "sweep_drafts"]

_LOG = logging.getLogger("tidemill.weights")


def blobs_by_use(root: Path) -> list[Path]:
    """The files of a cache, the least recently used first."""
    found = [(info.st_mtime_ns, Path(entry)) for entry, info in _files(root / "blobs")]
    return [path for _, path in sorted(found)]


def make_room(root: Path, limit: int | None, size: int) -> None:
    """Remove files that are not in use until `size` bytes more are within the limit.

    Raises:
        OSError: The new file alone is over the limit.
    """
    sweep_drafts(root)
    if limit is None:
        return
    if size > limit:
        raise OSError(f"a file of {size} bytes is over the cache's limit of {limit}; set TIDEMILL_CACHE_LIMIT higher")
    for blob in blobs_by_use(root):
        if _used(root) + size <= limit:
            return
        if drop_blob(root, blob):
            _LOG.info("removed %s from the cache, to stay within %d bytes", blob.name, limit)
    if _used(root) + size > limit:
        _LOG.warning("the cache goes over its limit of %d bytes, as everything in it is in use", limit)


def drop_blob(root: Path, blob: Path) -> bool:
    """Remove a file and the folders that hold a link to it; False if it is in use or not there."""
    lock = claim(blob)
    if lock is None:
        return False
    try:
        inode = os.fstat(lock.descriptor).st_ino
        for folder in _folders_with(root, inode):
            shutil.rmtree(folder)
        blob.unlink()
    finally:
        lock.release()
    return True


def sweep_drafts(root: Path) -> None:
    """Remove drafts that nobody is writing."""
    for path, _ in list(_files(root / "drafts")):
        lock = claim(Path(path))
        if lock:
            Path(path).unlink()
            lock.release()


def _used(root: Path) -> int:
    # Drafts have their whole size from the start, so what other processes fetch counts as well.
    return sum(info.st_size for part in ("blobs", "drafts") for _, info in _files(root / part))


def _folders_with(root: Path, inode: int) -> list[Path]:
    folders = root / "folders"
    found = (Path(path) for path, info in _files(folders, deep=True) if info.st_ino == inode)
    return sorted({folders / path.relative_to(folders).parts[0] for path in found})


def _files(folder: Path, *, deep: bool = False) -> Iterator[tuple[str, os.stat_result]]:
    paths = folder.rglob("*") if deep else folder.glob("*")
    for path in paths:
        try:
            info = path.stat(follow_symlinks=False)
        except FileNotFoundError:  # another process was faster
            continue
        if path.is_file():
            yield str(path), info
