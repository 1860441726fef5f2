"""Pictures for the tests, read by a package that not every environment has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

__all__ = ["open_picture", "pillow"]


def pillow() -> Any:
    """The module PIL.Image, or a skip."""
    return pytest.importorskip("PIL.Image", reason="needs the package pillow; run: make weights-large")


def open_picture(path: Path) -> Any:
    """A picture in red, green and blue, as pillow has it."""
    with pillow().open(path) as opened:
        return opened.convert("RGB")
