from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tidemill.bench import Report
from tidemill.cli import main

Capture = pytest.CaptureFixture[str]

QUICK = ["--window", "0.2", "--warmup", "0.1", "--windows", "2", "--max-windows", "2"]


def test_a_run_is_told_written_drawn_and_compared(server: dict[str, str], tmp_path: Path, capsys: Capture) -> None:
    report, plot = tmp_path / "a.json", tmp_path / "a.png"
    arguments = ["bench", server["http"], server["grpc"], "-m", "identity", "-w", "binary,grpc", "-c", "1,2", *QUICK]
    assert main([*arguments, "--json", str(report), "--plot", str(plot)]) == 0
    captured = capsys.readouterr()
    lines = captured.out.splitlines()
    assert lines[0].startswith("identity on tidemill ")
    assert lines[2].split()[:3] == ["load", "rows/s", "+-"]
    assert [line.split("  ")[0] for line in lines[3:7]] == [
        "binary, 1 callers",
        "binary, 2 callers",
        "grpc, 1 callers",
        "grpc, 2 callers",
    ]
    assert "measuring grpc, 2 callers\n  window 1: " in captured.err
    assert "\x1b" not in captured.err
    document = json.loads(report.read_text())
    assert len(Report.from_document(document).results) == 4
    assert document["machine"]["tidemill"]
    with Image.open(plot) as picture:
        assert picture.size[0] > 500

    assert main(["bench", "--compare", str(report), str(report)]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert len(rows) == 1 + 4 * 3
    assert {row[-1] for row in rows[1:]} == {"same"}
    assert {row[-4] for row in rows[1:]} == {"1.000"}


def test_sizes_and_ranges_come_from_the_line(server: dict[str, str], tmp_path: Path, capsys: Capture) -> None:
    made = ["--shape", "seq=4:9", "--range", "input_ids=3:7", "--shape", "batch=2"]
    assert main(["bench", server["http"], "-m", "tokens", "-c", "1", *made, *QUICK]) == 0
    assert "input_ids [2, 4..9], attention_mask [2, 4..9]" in capsys.readouterr().out


def test_recorded_inputs_are_sent(server: dict[str, str], tmp_path: Path, capsys: Capture) -> None:
    np.savez(tmp_path / "x.npz", x=np.ones((5, 3), np.float32))
    assert main(["bench", server["grpc"], "-m", "identity", "-c", "1", "-d", str(tmp_path / "x.npz"), *QUICK]) == 0
    out = capsys.readouterr().out
    assert "x [5, 3]" in out
    assert "grpc, 1 callers" in out


def test_a_terminal_gets_a_bar(server: dict[str, str]) -> None:
    parent, child = pty.openpty()
    command = [sys.executable, "-m", "tidemill.cli", "bench", server["http"], "-m", "identity", "-c", "1", *QUICK]
    with subprocess.Popen(command, stderr=child, stdout=subprocess.PIPE, text=True) as process:
        os.close(child)
        seen = b""
        try:
            while part := os.read(parent, 4096):
                seen += part
        except OSError:
            # Linux says so when the other end of a terminal is closed.
            pass
        assert process.stdout is not None
        assert "identity on tidemill" in process.stdout.read()
    os.close(parent)
    assert process.returncode == 0
    assert b"\x1b[" in seen
    assert b"binary, 1 callers" in seen
    assert b"measuring" not in seen


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        ([], "name the model"),
        (["-m", "nobody"], "nobody"),
        (["-m", "identity", "-w", "grpc"], "wire 'grpc' needs the address of gRPC"),
        (["-m", "identity", "-w", "soap"], "wire 'soap' is unknown; known are json, binary, grpc, shm"),
        (["-m", "identity", "-c", "1,x"], "--concurrency is '1,x'"),
        (["-m", "identity", "-c", "0"], "either callers or a rate above 0"),
        (["-m", "identity", "-s", "x"], "--shape is 'x', expected NAME=VALUE"),
        (["-m", "identity", "-s", "x.1=9"], "'x.1'"),
        (["-m", "identity", "-d", "{tmp}/none"], "cannot read"),
        (["-m", "identity", "--window", "0"], "above 0"),
        (["--compare", "{tmp}/a", "{tmp}/b"], "cannot read {tmp}/a"),
        (["--compare", "{tmp}/list", "{tmp}/list"], "is no report"),
        (["--compare", "{tmp}/old", "{tmp}/old"], "format 0"),
    ],
)
def test_errors_are_one_line(
    server: dict[str, str],
    tmp_path: Path,
    capsys: Capture,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    part: str,
) -> None:
    monkeypatch.setenv("TIDEMILL_URL", server["http"])
    (tmp_path / "list").write_text("nonsense")
    (tmp_path / "old").write_text('{"format": 0}')
    assert main(["bench", *(it.format(tmp=tmp_path) for it in arguments)]) == 1
    err = capsys.readouterr().err
    assert part.format(tmp=tmp_path) in err
    assert err.count("\n") == 1
