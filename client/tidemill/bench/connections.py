"""Connections to one server that come back after they were lost; knows both wires and no schedule."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Protocol

from tidemill.bench.encoding import Address
from tidemill.bench.http1 import Done, Http1Connection
from tidemill.bench.http2 import Http2Connection, header_block
from tidemill.bench.settings import Settings
from tidemill.errors import DeadlineExceeded, Unavailable

__all__ = ["Lane", "Open", "opener"]

_INFER = "/inference.GRPCInferenceService/ModelInfer"


class Connection(Protocol):
    """One request at a time."""

    usable: bool

    def send(self, request: bytes, done: Done) -> None:
        """Send one."""

    def close(self) -> None:
        """Close."""


Open = Callable[[], Awaitable[Connection]]


def opener(settings: Settings, wire: str) -> Open:
    """What opens a connection for a wire; it raises Unavailable if the server takes none."""
    address = Address.of(settings.url(wire))
    make: Callable[[], Http1Connection | Http2Connection] = Http1Connection
    if wire == "grpc":
        block = header_block(_INFER, address.authority, tls=address.tls, more=dict(settings.headers))
        make = partial(Http2Connection, block)
    context = _tls(wire) if address.tls else None

    async def connect() -> Connection:
        loop = asyncio.get_running_loop()
        try:
            return (await loop.create_connection(make, address.host, address.port, ssl=context))[1]
        except OSError as error:
            raise Unavailable(f"cannot connect to {address.authority}: {error}") from error

    return connect


def _tls(wire: str) -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.set_alpn_protocols(["h2"] if wire == "grpc" else ["http/1.1"])
    return context


class Lane:
    """A connection, whichever stands for it at the time; one request is on its way at most."""

    def __init__(self, open_connection: Open) -> None:
        self._open = open_connection
        self._connection: Connection | None = None
        self._done: Done | None = None
        self.sent = 0.0

    async def connect(self) -> None:
        """Open it, or open it again; Unavailable if the server takes no connections."""
        if not self.usable:
            self._connection = await self._open()

    @property
    def usable(self) -> bool:
        """Whether the connection stands."""
        return self._connection is not None and self._connection.usable

    def send(self, request: bytes, done: Done) -> None:
        """Send one request; `done` is called once."""
        self._done, self.sent = done, time.perf_counter()
        if self._connection is None:
            self._finish(Unavailable("not connected"))
        else:
            self._connection.send(request, self._finish)

    def expire(self, now: float, timeout: float) -> None:
        """Give up a request that has taken too long, and the connection with it."""
        if self._done and now - self.sent > timeout:
            connection, self._connection = self._connection, None
            self._finish(DeadlineExceeded(f"no answer within {timeout:g} s"))
            if connection:
                connection.close()

    def close(self) -> None:
        """Close the connection; what is in flight is not told any more."""
        self._done = None
        if self._connection:
            self._connection.close()

    def _finish(self, error: Exception | None) -> None:
        done, self._done = self._done, None
        if done:
            done(error)
