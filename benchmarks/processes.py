"""Server processes on a core of their own, and what they cost."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["HOST", "Cores", "Launch", "cpu_seconds", "free_ports", "pin", "running"]

HOST = "127.0.0.1"
_START_SECONDS = 180.0
_STOP_SECONDS = 20.0
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Cores:
    """Where the work runs: servers (and the bare runtime) on one core, the load on another if there is one."""

    server: int
    load: int

    @classmethod
    def chosen(cls) -> Cores:
        """The first and the last core that this process may use."""
        free = sorted(os.sched_getaffinity(0))
        return cls(free[0], free[-1])


@dataclass(frozen=True)
class Launch:
    """How a server is started and when it is up.

    Attributes:
        command: The program and its arguments.
        port: Where it answers.
        path: What it answers with 200 once it is up; "" if taking connections is enough.
        environment: Added to this process's.
        folder: Where it runs.
    """

    command: list[str]
    port: int
    path: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    folder: Path | None = None


def pin(core: int) -> None:
    """Keep the calling process on one core."""
    os.sched_setaffinity(0, {core})


@contextmanager
def running(launch: Launch, core: int | None, log: Path) -> Iterator[int]:
    """A server on `core`, or on all of them, up before and gone after; gives its process id."""
    environment = {**os.environ, **launch.environment}
    with (
        log.open("wb") as output,
        subprocess.Popen(
            launch.command,
            cwd=launch.folder,
            env=environment,
            preexec_fn=None if core is None else lambda: pin(core),
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        ) as process,
    ):
        try:
            _await_up(launch, process, log)
            yield process.pid
        finally:
            _stop(process)


def _await_up(launch: Launch, process: subprocess.Popen[bytes], log: Path) -> None:
    limit = time.monotonic() + _START_SECONDS
    while not _answers(launch.port, launch.path):
        if process.poll() is not None or time.monotonic() > limit:
            last = log.read_text(errors="replace")[-2000:]
            raise RuntimeError(f"{launch.command} did not come up (exit {process.poll()}):\n{last}")
        time.sleep(0.05)


def _stop(process: subprocess.Popen[bytes]) -> None:
    """End the server and, if it leaves any behind, the processes that it started."""
    for signal in (15, 9):
        try:
            os.killpg(process.pid, signal)
            process.wait(_STOP_SECONDS)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            continue


def _answers(port: int, path: str) -> bool:
    try:
        with socket.create_connection((HOST, port), timeout=5) as connection:
            if not path:
                return True
            connection.sendall(f"GET {path} HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\n\r\n".encode())
            return connection.recv(64).startswith(b"HTTP/1.1 200")
    except OSError:
        return False


def cpu_seconds(pid: int) -> float:
    """User and system time of a process and all that it started, so far."""
    parents: dict[int, int] = {}
    times: dict[int, float] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                fields = (entry / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
            except (FileNotFoundError, ProcessLookupError):
                continue
            # proc(5): after the name come state, ppid, ...; utime and stime are fields 14 and 15 of the whole line.
            parents[int(entry.name)] = int(fields[1])
            times[int(entry.name)] = (int(fields[11]) + int(fields[12])) / _TICKS
    return sum(times[one] for one in times if _descends(one, pid, parents))


def _descends(one: int, pid: int, parents: Mapping[int, int]) -> bool:
    while one > 1:
        if one == pid:
            return True
        one = parents.get(one, 0)
    return False


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on at this moment."""
    probes = [socket.create_server((HOST, 0)) for _ in range(count)]
    ports = [int(probe.getsockname()[1]) for probe in probes]
    for probe in probes:
        probe.close()
    return ports
