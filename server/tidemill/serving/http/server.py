"""The REST face's sockets: uvicorn, started and stopped by whoever composes the server instead of by signals."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Iterator
from functools import partial
from typing import Any

import uvicorn

from tidemill.errors import ConfigError
from tidemill.serving.http.fast_lane import FastProtocol
from tidemill.serving.http.fast_request import Lane
from tidemill.serving.http.protocol import CLOSE, HttpProtocol

__all__ = ["HttpServer", "listen"]

_KEEP_ALIVE_SECONDS = 75


class HttpServer(uvicorn.Server):
    """Serves an ASGI application on sockets that are open already."""

    def __init__(
        self, app: Any, lane: Lane | None = None, tls: ssl.SSLContext | None = None, read_timeout: float = 60.0
    ) -> None:
        """Set up.

        Args:
            app: Answers every request.
            lane: Answers plain infer requests instead; None to leave them to `app`.
            tls: What connections are encrypted with; None for none.
            read_timeout: Seconds for a whole head, and between two parts of a body.
        """
        kind = partial(FastProtocol, lane=lane) if lane else HttpProtocol
        protocol: Any = partial(kind, read_timeout=read_timeout)
        super().__init__(
            uvicorn.Config(
                app,
                http=protocol,
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                timeout_keep_alive=_KEEP_ALIVE_SECONDS,
                ssl_context_factory=(lambda _config, _default: tls) if tls else None,
            )
        )
        self._listening = asyncio.Event()
        self._done: asyncio.Task[None] | None = None

    async def start(self, listener: socket.socket) -> None:
        """Accept connections on `listener`, which is closed at the end."""
        self._done = asyncio.create_task(self.serve([listener]))
        await self._listening.wait()

    def part_from_clients(self) -> None:
        """Close every connection after its next answer, so that clients connect to another server."""
        if CLOSE in self.server_state.default_headers:
            return
        self.config.encoded_headers.append(CLOSE)
        self.server_state.default_headers = [*self.server_state.default_headers, CLOSE]

    async def finish(self) -> None:
        """Accept nothing more and return when every request in flight is answered."""
        self.should_exit = True
        if self._done:
            await asyncio.shield(self._done)

    async def abandon(self) -> None:
        """End at once; requests that are still here get no answer."""
        self.force_exit = True
        if self._done:
            self._done.cancel()
            await asyncio.wait((self._done,))

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Tell `start` that connections are accepted."""
        await super().startup(sockets)
        self._listening.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the process's signals alone."""
        yield


def listen(host: str, port: int) -> socket.socket:
    """Take an address for REST.

    Raises:
        ConfigError: It cannot be taken.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        # Where the protocol is not named, asyncio leaves Nagle's algorithm on, and answers in two parts take 40 ms.
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise ConfigError(f"cannot listen on {host!r} (host): {error.strerror}") from None
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(address)
    except OSError as error:
        listener.close()
        raise ConfigError(f"cannot listen on {host}:{port} for HTTP (http_port): {error.strerror}") from None
    return listener
