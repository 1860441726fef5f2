"""The tutorial works: every block of it is run, in order, as a reader would."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

_PAGE = Path(__file__).parents[2] / "docs" / "tutorial.md"
_BLOCK = re.compile(r"^```(python|sh)(?: (\S+))?\n(.*?)^```", re.DOTALL | re.MULTILINE)
_SERVE = "tidemill serve models"
_SHOWN = "localhost:8000"
_LIMIT_SECONDS = 60


def test_every_block_of_the_tutorial(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    names: dict[str, Any] = {"__name__": "tutorial"}
    with ExitStack() as stack:
        address = _SHOWN
        for kind, file, block in _BLOCK.findall(_PAGE.read_text(encoding="utf-8")):
            text = block.replace(_SHOWN, address)
            if file:
                Path(file).write_text(text)
            elif text.strip() == _SERVE:
                address = _start(stack)
            elif kind == "python":
                exec(compile(text, _PAGE.name, "exec"), names)
            else:
                subprocess.run(["bash", "-ec", text], check=True, timeout=_LIMIT_SECONDS)
    shown = capfd.readouterr().out
    for said in ("minutes on average", "batched yes", '"hours"', "nv_inference_exec_count", "requests/s"):
        assert said in shown
    (table,) = re.findall(r"^```text\n(.*?)^```", _PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    assert table.split() == shown.split()[: len(table.split())]
    del sys.modules["daylight"]


def _start(stack: ExitStack) -> str:
    """Start the server of the page, on a free port, and return its address."""
    command = [*_SERVE.split(), "--http-port", "0", "--grpc-port", "0"]
    server = stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
    stack.callback(server.terminate)
    limit = threading.Timer(_LIMIT_SECONDS, server.kill)
    limit.start()
    assert server.stdout is not None
    ready = re.search(r"http://(\S+) and", server.stdout.readline())
    limit.cancel()
    assert ready, f"no ready line within {_LIMIT_SECONDS} s"
    return ready[1]
