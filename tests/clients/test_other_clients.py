"""KServe's and MLServer's own clients, each in an environment of its own, against a real server."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from zoo_server import serving

HERE = Path(__file__).parent
ENVIRONMENTS = HERE.parents[1] / ".venv-clients"
ANSWERS = {
    "two": {
        "y": {"datatype": "FP32", "shape": [2, 2], "data": [2.0, 3.0, 4.0, 5.0]},
        "z": {"datatype": "FP32", "shape": [2, 2], "data": [2.0, 4.0, 6.0, 8.0]},
    },
    "gather": {"y": {"datatype": "FP32", "shape": [2], "data": [10.0, 40.0]}},
    "strings": {"y": {"datatype": "BYTES", "shape": [3], "data": ["é😀", "", "a"]}},
}


@pytest.fixture(scope="module")
def server(all_models: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    with serving(all_models) as addresses:
        yield addresses


def ask(client: str, server: dict[str, str]) -> dict[str, Any]:
    python = ENVIRONMENTS / client / "bin" / "python"
    if not python.exists():
        pytest.skip(f"the environment of {client}'s client is not there; make clients makes it")
    command = [str(python), str(HERE / f"{client}_client.py"), server["http"], server["grpc"]]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_kserves_client_over_rest_and_grpc(server: dict[str, str]) -> None:
    found = ask("kserve", server)
    for face in ("rest", "grpc"):
        told = found[face]
        assert (told["live"], told["ready"], told["model ready"]) == (True, True, True)
        assert {model: answer["outputs"] for model, answer in told["answers"].items()} == ANSWERS
        assert {answer["id"] for answer in told["answers"].values()} == {"the-id"}
        assert "9" in told["refused"]
    assert found["v1"] == {"ready": True, "answer": {"predictions": [3.0, 7.0]}}
    assert found["rest"]["binary"]["outputs"] == ANSWERS["two"]


def test_mlservers_codecs_and_stubs_over_rest_and_grpc(server: dict[str, str]) -> None:
    found = ask("mlserver", server)
    for face in ("rest", "grpc"):
        told = found[face]
        assert {model: answer["outputs"] for model, answer in told["answers"].items()} == ANSWERS
        assert told["answers"]["two"]["id"] == "the-id"
        assert told["metadata"] == ["two", "FP32", "y"]
