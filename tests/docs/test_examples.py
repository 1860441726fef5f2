"""The examples of the documentation do what they show."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[2]
_PAGES = sorted(path for path in (_ROOT / "docs").rglob("*.md") if ">>>" in path.read_text())
_BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("page", _PAGES, ids=lambda page: page.name)
def test_sessions_print_what_they_show(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    failed, tried = doctest.testfile(str(page), module_relative=False, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert tried > 0
    assert failed == 0


def test_the_readme_model_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (program,) = [block for block in _BLOCK.findall((_ROOT / "README.md").read_text()) if "class MLP" in block]
    exec(compile(program, "README.md", "exec"), {"__name__": "readme"})
    assert "(3, 10)" in capsys.readouterr().out
    assert (tmp_path / "my-models" / "mlp" / "1" / "bundle.json").is_file()
