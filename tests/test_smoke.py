"""The whole house in seconds: build a model, serve it, ask it over HTTP, stop it."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

TIDEMILL = [sys.executable, "-m", "tidemill.cli"]
LIMIT_SECONDS = 30.0


def _ask(url: str, question: dict[str, Any] | None = None) -> Any:
    body = None if question is None else json.dumps(question).encode()
    with urllib.request.urlopen(url, body, timeout=5) as answer:
        return json.loads(answer.read())


@contextmanager
def _serving(repository: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A server on ports of its own choice, and its URL, which it prints when it is ready."""
    command = [*TIDEMILL, "serve", str(repository), "--http-port", "0", "--grpc-port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        limit = threading.Timer(LIMIT_SECONDS, server.kill)
        limit.start()
        try:
            assert server.stdout is not None
            ready = re.search(r"serves .* on (http://\S+)", server.stdout.readline())
            assert ready, f"no ready line within {LIMIT_SECONDS} s"
            yield server, ready[1]
        finally:
            limit.cancel()
            server.kill()


def test_build_serve_ask_stop(tmp_path: Path) -> None:
    subprocess.run([*TIDEMILL, "build", "mlp", "--repository", str(tmp_path)], check=True)
    with _serving(tmp_path) as (server, url):
        (spec,) = _ask(f"{url}/v2/models/mlp")["inputs"]
        shape = [2, *spec["shape"][1:]]
        data = [0.5] * (shape[0] * shape[1])
        question = {"inputs": [{"name": spec["name"], "datatype": spec["datatype"], "shape": shape, "data": data}]}
        (output,) = _ask(f"{url}/v2/models/mlp/infer", question)["outputs"]
        assert output["shape"][0] == 2
        half = len(output["data"]) // 2
        assert output["data"][:half] == pytest.approx(output["data"][half:])
        server.send_signal(signal.SIGTERM)
        assert server.wait(LIMIT_SECONDS) == 0
