"""Files that may be replaced while the server runs, as a mounted Secret is."""

from __future__ import annotations

from pathlib import Path

__all__ = ["stamp"]


def stamp(path: Path | None) -> tuple[int, int, int] | None:
    """What changes when a file is written or replaced; None if there is none."""
    try:
        found = path.stat() if path else None
    except OSError:
        return None
    return (found.st_mtime_ns, found.st_size, found.st_ino) if found else None
