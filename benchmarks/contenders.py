"""What is compared: the bare runtime in a loop, and servers under load."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import h2load
import numpy as np
import onnxruntime as ort
from encoded import Encoded
from models import Feed, Model
from processes import Cores, cpu_seconds, pin

__all__ = ["Contender", "Round", "Target", "bare", "open_bare", "served"]

_MOST_LATENCY_SECONDS = 1.0


@dataclass(frozen=True)
class Round:
    """One measured stretch of one contender.

    Attributes:
        rows_per_second: Rows answered.
        p50_ms: The median latency of a request (of a run, for the bare runtime).
        p99_ms: The latency that one in a hundred exceeds.
        cpu_us: CPU time of the server a row, from /proc.
    """

    rows_per_second: float
    p50_ms: float
    p99_ms: float
    cpu_us: float


@dataclass(frozen=True)
class Contender:
    """Something that answers.

    Attributes:
        workload: What is asked, a key of MODELS.
        name: The server, or the bare runtime.
        detail: The wire and the connections, or the rows a run.
        measure: Runs one stretch of so many seconds.
        connections: How many; 0 for the bare runtime.
        rounds: What was measured.
    """

    workload: str
    name: str
    detail: str
    measure: Callable[[float], Round]
    connections: int = 0
    rounds: list[Round] = field(default_factory=list)

    def __str__(self) -> str:
        return f"{self.name}, {self.detail}"


def open_bare(repository: Path, model: Model) -> ort.InferenceSession:
    """The graph as a user of the bare runtime would open it, on one thread."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    path = repository / model.served / model.served / "1" / "model.onnx"
    return ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def bare(workload: str, session: ort.InferenceSession, feeds: list[Feed], rows: int, cores: Cores) -> Contender:
    """The bare runtime in a loop on the server's core, asked about one of the feeds after the other."""
    whole = [{name: np.repeat(array, rows, axis=0) for name, array in feed.items()} for feed in feeds]

    def measure(seconds: float) -> Round:
        pin(cores.server)
        latencies: list[float] = []
        begun, cpu = time.perf_counter(), time.process_time()
        last = begun
        while last < begun + seconds:
            session.run(None, whole[len(latencies) % len(whole)])
            now = time.perf_counter()
            latencies.append(now - last)
            last = now
        spent = time.process_time() - cpu
        pin(cores.load)
        return _round(len(latencies) * rows, last - begun, [it * 1e3 for it in latencies], spent)

    return Contender(workload, "onnxruntime", f"{rows} row{'s' if rows > 1 else ''} a run", measure)


@dataclass(frozen=True)
class Target:
    """A server that is up: its port, the process whose CPU time counts, and what it is asked."""

    port: int
    pid: int
    requests: list[Encoded]


def served(workload: str, name: str, wire: str, connections: int, target: Target, cores: Cores) -> Contender:
    """A server under a closed loop over so many connections."""
    (request,) = target.requests

    def measure(seconds: float) -> Round:
        before = cpu_seconds(target.pid)
        load = h2load.drive(target.port, request, connections, seconds, cores.load)
        spent = cpu_seconds(target.pid) - before
        short = min(seconds, _MOST_LATENCY_SECONDS)
        latencies = h2load.latencies_ms(target.port, request, connections, short, cores.load)
        return _round(load.answers, load.seconds, latencies, spent)

    return Contender(workload, name, f"{wire}, {connections} conn.", measure, connections)


def _round(rows: int, seconds: float, latencies_ms: list[float], cpu: float) -> Round:
    p50, p99 = np.percentile(latencies_ms, [50, 99])
    return Round(rows / seconds, float(p50), float(p99), cpu / rows * 1e6)
