"""The fast lane as a server: owns the port, answers ModelInfer itself and hands every other call to grpcio."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from pathlib import Path
from typing import Any

import grpc

from tidemill.errors import ConfigError, Unauthenticated
from tidemill.protocol import rpc
from tidemill.serving.grpc.fast.call import InferCall, Refused
from tidemill.serving.grpc.fast.connection import Connection, Stream
from tidemill.serving.grpc.fast.forward import ForwardedCall
from tidemill.serving.grpc.fast.head import Head
from tidemill.serving.grpc.guard import shown_key
from tidemill.serving.grpc.infer import Infer
from tidemill.serving.keys import KeyRing
from tidemill.serving.service import Service

__all__ = ["GrpcLane"]

_INFER = rpc.method_path("ModelInfer")


class GrpcLane:
    """One listening port.

    Attributes:
        address: Where grpcio has to listen for what is handed to it.
    """

    def __init__(self, service: Service, ring: KeyRing | None = None) -> None:
        """Set up and start nothing.

        Args:
            service: What answers.
            ring: The keys that callers need; None if they need none.
        """
        self._service = service
        self._ring = ring
        self._infer = Infer(service, linger=0)
        self._limit = service.config.max_request_bytes
        self._connections: set[Connection] = set()
        self._folder = Path(tempfile.mkdtemp(prefix="tidemill-grpc-"))
        self.address = f"unix:{self._folder / 'grpc.sock'}"
        self._channel: Any = None
        self._server: asyncio.Server | None = None

    async def start(self, host: str, port: int) -> int:
        """Accept connections and return the port.

        Raises:
            ConfigError: The address cannot be taken.
        """
        unlimited = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
        self._channel = grpc.aio.insecure_channel(self.address, options=unlimited)
        loop = asyncio.get_running_loop()
        try:
            self._server = await loop.create_server(lambda: Connection(self._open, self._connections), host, port)
        except OSError as error:
            raise ConfigError(f"cannot listen on {host}:{port} for gRPC (grpc_port): {error.strerror}") from None
        return int(self._server.sockets[0].getsockname()[1])

    def refuse(self) -> None:
        """Accept no more connections, and no more calls on those that there are."""
        if self._server:
            self._server.close()
        for connection in list(self._connections):
            connection.shutdown()

    async def finish(self) -> None:
        """Return when the last call is answered."""
        self.refuse()
        while self._connections:
            await asyncio.sleep(0.01)
        await self.abandon()

    async def abandon(self) -> None:
        """End at once."""
        for connection in list(self._connections):
            connection.abort()
        if self._channel is not None:
            await self._channel.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _open(self, connection: Connection, stream: int, head: Head) -> Stream:
        place = connection, stream
        if head.fault:
            return Refused(place, head.fault)
        if head.path == _INFER:
            return InferCall(place, head, self._infer, self._check, self._limit)
        return ForwardedCall(place, head, self._channel, self._limit)

    def _check(self, head: Head) -> None:
        if self._ring is None:
            return
        try:
            self._ring.keys.check("inference", shown_key(head.metadata))
        except Unauthenticated as error:
            self._service.metrics.unknown.on_request("grpc", error.code, 0.0)
            raise
