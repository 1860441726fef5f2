"""HAProxy before replicas that come and go, as a Service before pods: it notices readiness late and retries nothing."""

from __future__ import annotations

import asyncio
import socket
from asyncio.subprocess import DEVNULL, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

SLOTS = ("a", "b", "c")
CHECK_SECONDS = 0.5

_CONFIG = """
global
  stats socket {socket} mode 600 level admin
defaults
  mode http
  timeout connect 2s
  timeout client 60s
  timeout server 60s
  retries 0
  option httpchk GET /v2/health/ready
  default-server check inter {check}ms fall 1 rise 1 disabled
frontend rest
  bind fd@{rest}
  default_backend rest
backend rest
{rest_servers}
frontend grpc
  bind fd@{grpc} proto h2
  default_backend grpc
backend grpc
{grpc_servers}
"""


@dataclass(frozen=True)
class Balancer:
    """A running HAProxy."""

    rest_port: int
    grpc_port: int
    control: Path

    async def put(self, slot: str, http_port: int, grpc_port: int) -> None:
        """Send requests to a replica once it says that it is ready."""
        for backend, port in (("rest", http_port), ("grpc", grpc_port)):
            await self.command(f"set server {backend}/{slot} addr 127.0.0.1 port {port}")
            await self.command(f"set server {backend}/{slot} check-port {http_port}")
            await self.command(f"enable health {backend}/{slot}")
            await self.command(f"set server {backend}/{slot} state ready")
        await self.until(slot, "UP")

    async def until(self, slot: str, status: str) -> None:
        """Return once the checks of both faces have come to this."""
        async with asyncio.timeout(30):
            while {await self._status(backend, slot) for backend in ("rest", "grpc")} != {status}:
                await asyncio.sleep(0.02)

    async def drop(self, slot: str) -> None:
        """Take a slot whose replica has ended out of use."""
        for backend in ("rest", "grpc"):
            await self.command(f"set server {backend}/{slot} state maint")

    async def command(self, line: str) -> str:
        """One line to HAProxy's own socket, and what it says."""
        reader, writer = await asyncio.open_unix_connection(str(self.control))
        writer.write(f"{line}\n".encode())
        answer = (await reader.read()).decode()
        writer.close()
        await writer.wait_closed()
        return answer

    async def _status(self, backend: str, slot: str) -> str:
        for row in (await self.command("show stat")).splitlines():
            fields = row.split(",")
            if fields[:2] == [backend, slot]:
                return fields[17]
        raise AssertionError(f"HAProxy knows no {backend}/{slot}")


@asynccontextmanager
async def balancer(folder: Path) -> AsyncIterator[Balancer]:
    """HAProxy with three empty slots."""
    listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
    control = folder / "haproxy.sock"
    text = _CONFIG.format(
        socket=control,
        check=int(CHECK_SECONDS * 1000),
        rest=listeners[0].fileno(),
        grpc=listeners[1].fileno(),
        rest_servers="\n".join(f"  server {slot} 127.0.0.1:1 check port 1" for slot in SLOTS),
        grpc_servers="\n".join(f"  server {slot} 127.0.0.1:1 proto h2 check port 1 check-proto h1" for slot in SLOTS),
    )
    (folder / "haproxy.cfg").write_text(text)
    process = await _start(folder / "haproxy.cfg", [listener.fileno() for listener in listeners])
    try:
        async with asyncio.timeout(10):
            while not control.exists():
                await asyncio.sleep(0.02)
        rest, grpc = (listener.getsockname()[1] for listener in listeners)
        yield Balancer(rest, grpc, control)
    finally:
        process.kill()
        await process.wait()
        for listener in listeners:
            listener.close()


async def _start(config: Path, listeners: list[int]) -> Process:
    command = ["haproxy", "-db", "-f", str(config)]
    return await asyncio.create_subprocess_exec(*command, pass_fds=listeners, stdout=DEVNULL, stderr=DEVNULL)
