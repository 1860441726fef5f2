"""The page on the client works: every block of it is run, in order, against a real server."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from zoo_server import serving

from tidemill.cli.main import main

_PAGE = Path(__file__).parents[2] / "docs" / "client.md"
_BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
_COMMENT = re.compile(r"print\(.*\)  # (.*)$", re.MULTILINE)


def test_every_block_of_the_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["build", "mlp", "--repository", str(tmp_path)]) == 0
    capsys.readouterr()
    page = _PAGE.read_text(encoding="utf-8")
    names: dict[str, Any] = {"__name__": "page"}
    with serving(tmp_path) as addresses:
        for block in _BLOCK.findall(page):
            exec(compile(block.replace("localhost:8000", addresses["http"]), _PAGE.name, "exec"), names)
    assert capsys.readouterr().out.splitlines() == _COMMENT.findall(page)
