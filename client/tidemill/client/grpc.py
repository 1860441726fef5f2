"""The gRPC transports, blocking and asyncio: they send the bytes of a message and return those of the answer."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import grpc

from tidemill.client.address import Address
from tidemill.client.attempts import NotRun
from tidemill.client.call import Call
from tidemill.client.settings import Settings
from tidemill.errors import ConfigError
from tidemill.protocol import rpc
from tidemill.protocol.status import error_from_grpc

__all__ = ["AsyncGrpcTransport", "GrpcTransport"]

# gRPC would refuse messages above 4 MiB; what is too large is the server's to say.
_OPTIONS = (
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    # A repetition is ours to decide, for gRPC does not know what may run twice.
    ("grpc.enable_retries", 0),
)
_PATHS = {method.name: rpc.method_path(method.name) for method in rpc.METHODS}


class GrpcTransport:
    """Blocking; threads may share it. All calls go over one connection."""

    def __init__(self, address: Address, settings: Settings) -> None:
        if address.is_tls:
            self._channel = grpc.secure_channel(address.authority, _credentials(settings), options=_OPTIONS)
        else:
            self._channel = grpc.insecure_channel(address.authority, options=_OPTIONS)
        # Without serialisers, bytes pass as they are.
        self._callables = {name: self._channel.unary_unary(path) for name, path in _PATHS.items()}
        self._metadata = tuple(settings.sent().items())
        self._address = address

    def send(self, call: Call[Any], seconds: float | None) -> bytes:
        """One attempt, at most so many seconds long."""
        with _rpc_errors(self._address):
            answer: bytes = self._callables[call.target](b"".join(call.parts), seconds, self._metadata)
            return answer

    def close(self) -> None:
        """Close the connection."""
        self._channel.close()


class AsyncGrpcTransport:
    """For asyncio. The connection belongs to a loop; a call in another loop opens its own."""

    def __init__(self, address: Address, settings: Settings) -> None:
        self._address = address
        self._settings = settings
        self._metadata = tuple(settings.sent().items())
        self._loop: weakref.ref[asyncio.AbstractEventLoop] | None = None
        self._channel: Any = None
        self._callables: dict[str, Any] = {}

    async def send(self, call: Call[Any], seconds: float | None) -> bytes:
        """One attempt, at most so many seconds long. A cancelled one is cancelled on the server too."""
        self._open()
        with _rpc_errors(self._address):
            answer: bytes = await self._callables[call.target](
                b"".join(call.parts), timeout=seconds, metadata=self._metadata
            )
            return answer

    async def close(self) -> None:
        """Close the connection."""
        channel, self._channel, self._loop = self._channel, None, None
        if channel is not None:
            await channel.close()

    def _open(self) -> None:
        loop = asyncio.get_running_loop()
        if self._loop is not None and self._loop() is loop:
            return
        self._loop = weakref.ref(loop)
        if self._address.is_tls:
            credentials = _credentials(self._settings)
            self._channel = grpc.aio.secure_channel(self._address.authority, credentials, options=_OPTIONS)
        else:
            self._channel = grpc.aio.insecure_channel(self._address.authority, options=_OPTIONS)
        self._callables = {name: self._channel.unary_unary(path) for name, path in _PATHS.items()}


def _credentials(settings: Settings) -> Any:
    try:
        chain = _read(settings.certificate)
        return grpc.ssl_channel_credentials(
            root_certificates=_read(settings.ca),
            private_key=_read(settings.certificate_key or settings.certificate),
            certificate_chain=chain,
        )
    except OSError as error:
        raise ConfigError(f"the certificates cannot be used: {error}") from error


def _read(path: str) -> bytes | None:
    if not path:
        return None
    with open(path, "rb") as file:
        return file.read()


@contextmanager
def _rpc_errors(address: Address) -> Iterator[None]:
    try:
        yield
    except grpc.RpcError as error:
        name, text = error.code().name, error.details() or "the server gave no text"
        if name == "UNAVAILABLE":
            told_by_server = "received from peer" in (error.debug_error_string() or "")
            if told_by_server:
                raise NotRun(text) from error
            if text.startswith(("failed to connect", "DNS resolution failed")):
                raise NotRun(f"cannot reach {address}: {text}") from error
        raise error_from_grpc(name, text) from error
