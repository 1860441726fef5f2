"""What is compared: the bare runtime in a loop, a tidemill server, and a server that does nothing."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
from tritonclient.http import InferenceServerClient, InferInput, InferRequestedOutput
from tritonclient.utils import np_to_triton_dtype
from wire import HOST, ask_once, drive, request_bytes

SYMBOLIC_SIZE = 16
START_LIMIT = 60.0
_WHOLE = {"tensor(int64)": np.int64, "tensor(int32)": np.int32}

Feed = Mapping[str, Any]


@dataclass(frozen=True)
class Round:
    """One measured stretch of one contender."""

    requests_per_second: float
    p50_ms: float
    p99_ms: float

    @classmethod
    def of(cls, latencies: list[float], seconds: float) -> Round:
        p50, p99 = np.percentile(latencies, [50, 99]) * 1e3
        return cls(len(latencies) / seconds, float(p50), float(p99))


@dataclass(frozen=True)
class Contender:
    """Something that answers requests; `rows` are answered by each."""

    model: str
    name: str
    measure: Callable[[float], Round]
    rows: int = 1
    rounds: list[Round] = field(default_factory=list)


@dataclass(frozen=True)
class Cores:
    """Where the work runs: the server (and the bare runtime) on one core, the client on another if there is one."""

    server: int | None
    client: int | None

    @classmethod
    def chosen(cls) -> Cores:
        if not hasattr(os, "sched_getaffinity"):
            return cls(None, None)
        free = sorted(os.sched_getaffinity(0))
        return cls(free[0], free[-1])


def pin(core: int | None) -> None:
    """Keep the calling process on one core, where the system can."""
    if core is not None:
        os.sched_setaffinity(0, {core})


def open_raw(repository: Path, model: str) -> ort.InferenceSession:
    """The newest version's graph, opened as a user of the bare runtime would, on one thread."""
    versions = [path for path in (repository / model).iterdir() if path.name.isdigit()]
    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    newest = max(versions, key=lambda path: int(path.name))
    return ort.InferenceSession(newest / "model.onnx", options, providers=["CPUExecutionProvider"])


def make_feed(session: ort.InferenceSession, rows: int) -> Feed:
    """Seeded noise for floats, ones for whole numbers; every symbolic axis but the first has SYMBOLIC_SIZE."""
    noise = np.random.default_rng(0)

    def array(spec: Any) -> Any:
        sizes = [rows, *[SYMBOLIC_SIZE] * len(spec.shape)]
        shape = [size if isinstance(size, int) else sizes[axis] for axis, size in enumerate(spec.shape)]
        if spec.type == "tensor(float)":
            return noise.standard_normal(shape, np.float32)
        return np.ones(shape, _WHOLE[spec.type])

    return {spec.name: array(spec) for spec in session.get_inputs()}


def raw(session: ort.InferenceSession, model: str, rows: int, cores: Cores) -> Contender:
    """The bare runtime in a loop, on the server's core; what is left of it is what serving costs."""
    feed = make_feed(session, rows)

    def measure(seconds: float) -> Round:
        pin(cores.server)
        latencies, begun = [], time.perf_counter()
        last = begun
        while last < begun + seconds:
            session.run(None, feed)
            now = time.perf_counter()
            latencies.append(now - last)
            last = now
        pin(cores.client)
        return Round.of(latencies, last - begun)

    return Contender(model, f"onnxruntime, {rows} rows a run" if rows > 1 else "onnxruntime", measure, rows)


def http(name: str, model: str, port: int, request: bytes, connections: int) -> Contender:
    """A server on `port` under `connections` closed loops."""
    return Contender(
        model,
        f"{name}, {connections} connection{'s' if connections > 1 else ''}",
        lambda seconds: Round.of(*drive(port, request, connections=connections, seconds=seconds)),
    )


def infer_request(model: str, feed: Feed, outputs: list[str]) -> bytes:
    """A binary infer request, encoded by tritonclient, so that tidemill does not judge itself."""
    inputs = []
    for name, array in feed.items():
        inputs.append(InferInput(name, list(array.shape), np_to_triton_dtype(array.dtype)))
        inputs[-1].set_data_from_numpy(array)
    wanted = [InferRequestedOutput(name, binary_data=True) for name in outputs]
    body, header_length = InferenceServerClient.generate_request_body(inputs, outputs=wanted)
    headers = {} if header_length is None else {"Inference-Header-Content-Length": str(header_length)}
    return request_bytes(f"/v2/models/{model}/infer", body, headers)


def check_answer(port: int, request: bytes, session: ort.InferenceSession, feed: Feed) -> int:
    """Refuse to measure a server whose answer differs from the runtime's; returns the answer's length in bytes."""
    answer = ask_once(port, request)
    length = re.search(rb"\r\ninference-header-content-length: *(\d+)", answer.head, re.IGNORECASE)
    result = InferenceServerClient.parse_response_body(answer.body, header_length=int(length[1]) if length else None)
    names = [spec.name for spec in session.get_outputs()]
    for name, expected in zip(names, session.run(names, feed), strict=True):
        np.testing.assert_allclose(result.as_numpy(name), expected, rtol=1e-4, atol=1e-5, err_msg=name)
    return len(answer.body)


@contextmanager
def running(command: list[str], cores: Cores, is_up: Callable[[], bool]) -> Iterator[None]:
    """A server process on its own core, up before and gone after."""
    with subprocess.Popen([sys.executable, *command], preexec_fn=lambda: pin(cores.server)) as process:
        try:
            limit = time.monotonic() + START_LIMIT
            while not is_up():
                if process.poll() is not None or time.monotonic() > limit:
                    raise RuntimeError(f"{command} did not come up (exit {process.poll()})")
                time.sleep(0.05)
            yield
        finally:
            process.terminate()


def answers(port: int, path: str) -> bool:
    """Whether a GET of `path` is answered with 200."""
    try:
        with socket.create_connection((HOST, port), timeout=5) as connection:
            connection.sendall(f"GET {path} HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\n\r\n".encode())
            return connection.recv(64).startswith(b"HTTP/1.1 200")
    except OSError:
        return False


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on at this moment."""
    probes = [socket.create_server((HOST, 0)) for _ in range(count)]
    ports = [int(probe.getsockname()[1]) for probe in probes]
    for probe in probes:
        probe.close()
    return ports
