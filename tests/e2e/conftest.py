"""The zoo's models behind a real `tidemill serve`, in a process of its own."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from tidemill.modelzoo import ZOO

_FIXTURE = Path(__file__).parents[1] / "data" / "minilm.json"
_LIMIT_SECONDS = 60.0


class Served(NamedTuple):
    """Where the server answers."""

    http: str
    grpc: str


class Sentence(NamedTuple):
    """A sentence with what the published model makes of it."""

    text: str
    ids: np.ndarray[Any, Any]
    first: np.ndarray[Any, Any]
    total: float


@pytest.fixture(scope="session")
def zoo_repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with the models of the README."""
    repository = tmp_path_factory.mktemp("zoo")
    for name in ("mlp", "minilm"):
        ZOO[name].build(repository)
    return repository


@pytest.fixture(scope="session")
def served(zoo_repository: Path) -> Iterator[Served]:
    """The addresses of a server over the zoo's repository."""
    command = [
        sys.executable,
        "-m",
        "tidemill.cli",
        "serve",
        str(zoo_repository),
        "--http-port",
        "0",
        "--grpc-port",
        "0",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        limit = threading.Timer(_LIMIT_SECONDS, server.kill)
        limit.start()
        assert server.stdout is not None
        ready = re.search(r"http://(\S+) and grpc://(\S+)", server.stdout.readline())
        limit.cancel()
        try:
            assert ready, f"no ready line within {_LIMIT_SECONDS} s"
            yield Served(ready[1], ready[2])
        finally:
            server.terminate()


@pytest.fixture(scope="session")
def sentences() -> list[Sentence]:
    """The reference, computed in float64 by the original implementation; the last text has 256 tokens."""
    entries = json.loads(_FIXTURE.read_text())["sentences"]
    return [
        Sentence(
            entry["text"] if entry["text"] is not None else "x " * 300,
            np.array([entry["input_ids"] or []], np.int64),
            np.array(entry["embedding_first8"]),
            entry["sum"],
        )
        for entry in entries
    ]


@pytest.fixture(scope="session")
def cosines() -> np.ndarray[Any, Any]:
    """The pairwise cosines of the sentences."""
    return np.array(json.loads(_FIXTURE.read_text())["cosine"])
