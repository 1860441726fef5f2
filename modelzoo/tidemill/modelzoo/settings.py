"""The files beside a built model's versions; what a user has changed there is the user's."""

from __future__ import annotations

from pathlib import Path

__all__ = ["write_settings"]


def write_settings(path: Path, text: str) -> None:
    """Write a model.yaml, unless there is one."""
    if not path.exists():
        path.write_text(text, encoding="utf-8")
