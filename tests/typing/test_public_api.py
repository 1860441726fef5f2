"""Type checkers understand the public API as it is used."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

_HERE = Path(__file__).parent
_ROOT = _HERE.parents[1]
_ROOTS = ("proto", "client", "authoring", "modelzoo", "server")


def test_mypy_accepts_a_program() -> None:
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(_ROOT / ".mypy_cache"), "public_api.py"]
    result = subprocess.run(command, cwd=_HERE, capture_output=True, text=True, check=False, env=_environment())
    assert "Success: no issues found" in result.stdout, result.stdout


def test_pyright_accepts_a_program(tmp_path: Path) -> None:
    config = {
        "include": [str(_HERE / "public_api.py")],
        "extraPaths": [str(_ROOT / root) for root in _ROOTS],
        "typeCheckingMode": "strict",
        "pythonVersion": "3.11",
        "venvPath": str(Path(sys.prefix).parent),
        "venv": Path(sys.prefix).name,
    }
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(config))
    command = [sys.executable, "-m", "basedpyright", "--project", str(tmp_path), "--outputjson"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    report = json.loads(result.stdout)
    assert report["summary"]["filesAnalyzed"] == 1
    assert not report["generalDiagnostics"], json.dumps(report["generalDiagnostics"], indent=1)


def _environment() -> dict[str, str]:
    return {**os.environ, "MYPYPATH": ":".join(str(_ROOT / root) for root in _ROOTS)}
