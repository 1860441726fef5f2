"""Files that are on the disk before anybody sees them; knows nothing of what is in them."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

__all__ = ["exchange", "sync", "write_whole"]

_HERE = -100  # AT_FDCWD: relative paths begin in the current folder
_EXCHANGE = 2


def sync(path: Path) -> None:
    """Bring a file's bytes, or the names in a folder, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def exchange(left: Path, right: Path) -> bool:
    """Let two paths change places at once, so that neither is missing for a moment; False where that is not offered.

    It is Linux's renameat2 with RENAME_EXCHANGE, which Python has no name for.
    """
    renameat2 = getattr(ctypes.CDLL(None), "renameat2", None)
    if renameat2 is None:
        return False
    done: int = renameat2(_HERE, os.fsencode(left), _HERE, os.fsencode(right), _EXCHANGE)
    return done == 0


def write_whole(path: Path, content: bytes) -> None:
    """Write a file that is replaced as a whole; only one process may do this for a path at one time."""
    draft = path.with_name(f".{path.name}")
    draft.write_bytes(content)
    sync(draft)
    draft.replace(path)
    sync(path.parent)
