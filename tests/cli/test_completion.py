from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tidemill.cli import main
from tidemill.cli.completion import commands_of
from tidemill.cli.main import make_parser

Capture = pytest.CaptureFixture[str]


def _script(shell: str, capsys: Capture) -> str:
    assert main(["completion", shell]) == 0
    return capsys.readouterr().out


def _complete(script: str, line: str, folder: Path) -> set[str]:
    """What bash itself offers for the last word of a line."""
    words = line.split(" ")
    quoted = " ".join(f"'{word}'" for word in words)
    program = (
        f'{script}\nCOMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; _tidemill; printf "%s\\n" "${{COMPREPLY[@]}}"'
    )
    done = subprocess.run(["bash", "-c", program], cwd=folder, capture_output=True, text=True, check=True, timeout=30)
    assert done.stderr == ""
    return set(done.stdout.split())


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("tidemill se", {"serve"}),
        ("tidemill client ", {"ls", "show", "infer", "-h", "--help"}),
        ("tidemill client infer --fo", {"--format"}),
        ("tidemill client infer m --format ", {"table", "json", "npy", "safetensors"}),
        ("tidemill client infer m --format s", {"safetensors"}),
        ("tidemill bench --arrivals ", {"poisson", "constant"}),
        ("tidemill bench --comp", {"--compare"}),
        ("tidemill completion ", {"bash", "zsh", "fish", "-h", "--help"}),
        ("tidemill zoo b", {"build"}),
        ("tidemill serve mod", {"models"}),
        ("tidemill bench --json rep", {"report.json"}),
        ("tidemill bench --data ", {"models", "report.json"}),
    ],
)
def test_bash_completes(tmp_path: Path, capsys: Capture, line: str, expected: set[str]) -> None:
    (tmp_path / "models").mkdir()
    (tmp_path / "report.json").touch()
    assert _complete(_script("bash", capsys), line, tmp_path) == expected


def test_bash_knows_every_command_and_flag(tmp_path: Path, capsys: Capture) -> None:
    script = _script("bash", capsys)
    for command in commands_of(make_parser()):
        offered = _complete(script, " ".join(["tidemill", *command.words, ""]), tmp_path)
        flags = {name for flag in command.flags for name in flag.names}
        assert offered >= flags | set(command.commands), command.words


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_scripts_of_other_shells_are_read_by_them(tmp_path: Path, capsys: Capture, shell: str) -> None:
    script = _script(shell, capsys)
    assert all(name in script for name in ("infer", "arrivals", "completion"))
    if program := shutil.which(shell):
        path = tmp_path / "script"
        path.write_text(script)
        subprocess.run([program, "-n", str(path)], check=True, timeout=30)
    else:
        pytest.skip(f"{shell} is not installed; its script was only made")
