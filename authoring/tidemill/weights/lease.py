"""Locks on files that end with the process that holds them, however it ends; knows nothing of what is in the files."""

from __future__ import annotations

import fcntl
import os
import weakref
from pathlib import Path

__all__ = ["FileLock", "claim", "share"]


class FileLock:
    """A lock on a file, held until it is released or forgotten."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self.descriptor = descriptor
        self.release = weakref.finalize(self, os.close, descriptor)

    def is_current(self) -> bool:
        """Whether the locked file is still the one at `path`."""
        try:
            return os.path.samestat(os.fstat(self.descriptor), self.path.stat())
        except FileNotFoundError:
            return False


def claim(path: Path, *, create: bool = False) -> FileLock | None:
    """Lock a file for one alone; None if another holds it, or it is not there and not to be created."""
    return _lock(path, os.O_RDWR | os.O_CREAT if create else os.O_RDONLY, fcntl.LOCK_EX)


def share(path: Path) -> FileLock | None:
    """Lock a file against those who want it for themselves; None if one of them has it, or it is not there."""
    return _lock(path, os.O_RDONLY, fcntl.LOCK_SH)


def _lock(path: Path, mode: int, kind: int) -> FileLock | None:
    try:
        lock = FileLock(path, os.open(path, mode | os.O_CLOEXEC, 0o600))
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(lock.descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.release()
        return None
    # Between opening and locking, the file may have been renamed or removed by the one who had it.
    if lock.is_current():
        return lock
    lock.release()
    return None
