"""Load by nghttp2's h2load: a closed loop over so many connections, from a core of its own."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from encoded import Encoded
from processes import HOST, pin

__all__ = ["Load", "drive", "latencies_ms", "require_h2load"]

# grpcio and Triton take one request after the other from a stream's window; 30 bits never make them wait.
_WINDOWS = ["--window-bits=30", "--connection-window-bits=30"]


@dataclass(frozen=True)
class Load:
    """What one stretch gave: answers with status 200, and how long it took."""

    answers: int
    seconds: float


def require_h2load() -> str:
    """The version of h2load; SystemExit with advice if there is none."""
    if not shutil.which("h2load"):
        raise SystemExit("h2load is not installed; on Debian and Ubuntu: apt install nghttp2-client")
    return subprocess.run(["h2load", "--version"], capture_output=True, text=True, check=True).stdout.strip()


def drive(port: int, request: Encoded, connections: int, seconds: float, core: int) -> Load:
    """Load a server; RuntimeError if any answer is not a 200."""
    return _run(port, request, connections, seconds, core, [])


def latencies_ms(port: int, request: Encoded, connections: int, seconds: float, core: int) -> list[float]:
    """The latency of each request of a stretch of its own, for writing them down costs the load some of its speed."""
    with tempfile.TemporaryDirectory(dir=_memory()) as folder:
        log = Path(folder) / "log"
        _run(port, request, connections, seconds, core, [f"--log-file={log}"])
        # Start of the request in us, status, duration in us.
        return list(np.loadtxt(log, dtype=np.int64, ndmin=2)[:, 2] / 1e3)


def _run(port: int, request: Encoded, connections: int, seconds: float, core: int, more: list[str]) -> Load:
    with tempfile.NamedTemporaryFile(dir=_memory()) as body:
        body.write(request.body)
        body.flush()
        headers = [f"--header={name}: {value}" for name, value in request.headers.items()]
        protocol = _WINDOWS if request.http2 else ["--h1"]
        shape = [f"--clients={connections}", "--threads=1", f"--duration={max(seconds, 1):.0f}"]
        command = ["h2load", *protocol, *shape, *headers, *more, f"--data={body.name}"]
        url = f"http://{HOST}:{port}{request.path}"
        done = subprocess.run(
            [*command, url], capture_output=True, text=True, check=False, preexec_fn=lambda: pin(core)
        )
    return _parse(done.stdout + done.stderr, url)


def _parse(text: str, url: str) -> Load:
    finished = re.search(r"finished in ([\d.]+)(ms|s|us)", text)
    counts = re.search(r"(\d+) done, (\d+) succeeded, (\d+) failed, (\d+) errored, (\d+) timeout", text)
    if not finished or not counts:
        raise RuntimeError(f"h2load did not finish on {url}:\n{text}")
    done, succeeded, *bad = map(int, counts.groups())
    if any(bad) or not succeeded or done != succeeded:
        raise RuntimeError(f"{url}: of {done} answers only {succeeded} were right:\n{text}")
    scale = {"s": 1.0, "ms": 1e-3, "us": 1e-6}[finished[2]]
    return Load(succeeded, float(finished[1]) * scale)


def _memory() -> Path | None:
    """A folder in memory where there is one: the load's core shall not wait for a disk."""
    memory = Path("/dev/shm")
    return memory if memory.is_dir() else None
