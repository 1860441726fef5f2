"""`tidemill bench --replay` against a server that has recorded what it was asked."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from tidemill.bench.replay import read_recording
from tidemill.cli.main import main
from tidemill.client import Client
from tidemill.errors import ConfigError

_SHAPES = ((2, 3), (5, 3), (2, 3), (1, 3))


@pytest.fixture
def recording(server: dict[str, str]) -> dict[str, Any]:
    """What the server recorded of four answered requests, one that failed, and one for another model."""
    url = server["http"]
    begun = time.time()
    with Client(url) as client:
        for shape in _SHAPES:
            client.infer("identity", {"x": np.ones(shape, np.float32)})
        client.infer("strings", {"x": np.full(1, b"a", object)})
    httpx.post(f"{url}/v2/models/nobody/infer", json={"inputs": []})
    return {"requests": _recorded(url, begun)}


def _recorded(url: str, since: float) -> list[dict[str, Any]]:
    """By time: the server forgets old ones, so that counting what it holds tells nothing."""
    found: list[dict[str, Any]] = httpx.get(f"{url}/v2/requests").json()["requests"]
    return [one for one in found if one["time"] >= since]


@pytest.mark.parametrize("wire", ["json", "grpc"])
def test_the_same_shapes_are_sent_again_in_their_order(
    server: dict[str, str],
    recording: dict[str, Any],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    wire: str,
) -> None:
    for place, one in enumerate(recording["requests"]):
        one["time"] = 1000.0 + 0.4 * place
    source, target = tmp_path / "recording.json", tmp_path / "result.json"
    source.write_text(json.dumps(recording))
    url = server["http"]
    begun = time.time()
    line = ["bench", url, server["grpc"], "--replay", str(source), "--wire", wire, "--speed", "10"]
    assert main([*line, "--json", str(target)]) == 0
    told = json.loads(target.read_text())["replay"]
    assert [(one["model"], one["requests"], one["errors"]) for one in told] == [("identity", 4, {}), ("strings", 1, {})]
    assert all(one["replayed_ms"][0] > 0 for one in told)
    again = _recorded(url, begun)
    assert [one["inputs"] for one in again] == [one["inputs"] for one in recording["requests"] if one["code"] == "ok"]
    # Ten times as fast: four steps of 0.04 s.
    assert 0.12 < again[-1]["time"] - again[0]["time"] < 2
    assert capsys.readouterr().out.splitlines()[0].split()[:2] == ["model", "requests"]


def test_a_recording_is_fetched_from_the_server_that_has_it(server: dict[str, str], recording: dict[str, Any]) -> None:
    assert recording
    url = server["http"]
    assert main(["bench", url, "--replay", url, "--model", "strings", "--speed", "1000"]) == 0


@pytest.mark.parametrize(
    ("document", "fault"),
    [
        ([], "no recording"),
        ({"requests": [{"code": "ok"}]}, "no recording"),
        ({"requests": []}, "holds no request"),
        ({"requests": [{"code": "not_found", "inputs": []}]}, "holds no request"),
    ],
)
def test_what_is_no_recording_is_refused(document: Any, fault: str) -> None:
    with pytest.raises(ConfigError, match=fault):
        read_recording(document)


def test_shapes_that_the_model_no_longer_takes_are_told(
    server: dict[str, str], recording: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recording["requests"][0]["inputs"][0]["name"] = "gone"
    source = tmp_path / "recording.json"
    source.write_text(json.dumps(recording))
    assert main(["bench", server["http"], "--replay", str(source)]) == 1
    assert "'gone'; the model takes x" in capsys.readouterr().err
