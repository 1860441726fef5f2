"""docs/ops.md is what its generator writes, and knows every operator."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tidemill.graph import ops

DOCS = Path(__file__).parents[3] / "docs"


def test_the_committed_page_is_current() -> None:
    check = [sys.executable, str(DOCS / "generate_ops.py"), "--check"]
    result = subprocess.run(check, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr) == (0, "")


def test_every_operator_is_on_the_page() -> None:
    page = (DOCS / "ops.md").read_text(encoding="utf-8")
    functions = [
        name for name in ops.__all__ if callable(getattr(ops, name)) and not isinstance(getattr(ops, name), type)
    ]
    assert [name for name in functions if f"| `{name}` |" not in page] == []
