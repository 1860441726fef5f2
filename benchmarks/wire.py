"""A closed-loop HTTP client: every connection sends its next request when the last one is answered."""

from __future__ import annotations

import asyncio
import re
import time
from dataclasses import dataclass

import uvloop

HOST = "127.0.0.1"
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)


@dataclass(frozen=True)
class Answer:
    head: bytes
    body: bytes


def request_bytes(path: str, body: bytes, headers: dict[str, str]) -> bytes:
    """One whole POST request, kept alive."""
    fields = {"Host": HOST, "Content-Length": str(len(body)), **headers}
    lines = [f"POST {path} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items()), "", ""]
    return "\r\n".join(lines).encode() + body


def ask_once(port: int, request: bytes) -> Answer:
    """Send one request on a connection of its own."""

    async def ask() -> Answer:
        reader, writer = await asyncio.open_connection(HOST, port)
        try:
            return await _exchange(reader, writer, request)
        finally:
            writer.close()

    return uvloop.run(ask())


def drive(port: int, request: bytes, *, connections: int, seconds: float) -> tuple[list[float], float]:
    """Load a server for about `seconds`; returns each request's latency in seconds and the time it took in all."""

    async def load() -> tuple[list[float], float]:
        latencies: list[float] = []
        begun = time.perf_counter()
        loops = (_loop(port, request, begun + seconds, latencies) for _ in range(connections))
        await asyncio.gather(*loops)
        return latencies, time.perf_counter() - begun

    return uvloop.run(load())


async def _loop(port: int, request: bytes, until: float, latencies: list[float]) -> None:
    reader, writer = await asyncio.open_connection(HOST, port)
    try:
        sent = time.perf_counter()
        while sent < until:
            await _exchange(reader, writer, request)
            answered = time.perf_counter()
            latencies.append(answered - sent)
            sent = answered
    finally:
        writer.close()


async def _exchange(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes) -> Answer:
    writer.write(request)
    head = await reader.readuntil(b"\r\n\r\n")
    length = _LENGTH.search(head)
    body = await reader.readexactly(int(length[1]) if length else 0)
    if not head.startswith(b"HTTP/1.1 200"):
        raise RuntimeError(
            f"the server answered {head.splitlines()[0].decode()}: {body[:500].decode(errors='replace')}"
        )
    return Answer(head, body)
