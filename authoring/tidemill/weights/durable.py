"""Files that are on the disk before anybody sees them; knows nothing of what is in them."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["sync", "write_whole"]


def sync(path: Path) -> None:
    """Bring a file's bytes, or the names in a folder, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_whole(path: Path, content: bytes) -> None:
    """Write a file that is replaced as a whole; only one process may do this for a path at one time."""
    draft = path.with_name(f".{path.name}")
    draft.write_bytes(content)
    sync(draft)
    draft.replace(path)
    sync(path.parent)
