"""Messages with tensors between the server and a model's own process; knows neither, and trusts neither's bytes."""

from __future__ import annotations

import json
import socket
import struct
import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from tidemill.dtype import DType
from tidemill.errors import InvalidArgument
from tidemill.protocol.tensors import from_bytes, to_bytes
from tidemill.protocol.types import Array

__all__ = ["TensorPipe"]

_LENGTH = struct.Struct("<I")
_MOST = 64 << 20
"""Bytes of a message's head; what claims more is no head."""


class TensorPipe:
    """One end of a socket. A message is the length of its head, the head as JSON, and the bytes of its tensors."""

    def __init__(self, connection: socket.socket) -> None:
        """Take over a connected socket."""
        self._socket = connection
        self._sending = threading.Lock()

    def send(self, head: Mapping[str, Any], tensors: Mapping[str, Array] | None = None) -> None:
        """Send a message; from any thread.

        Raises:
            OSError: The other end is gone.
        """
        described, bodies = [], []
        for name, array in (tensors or {}).items():
            dtype = DType.from_numpy(array.dtype)
            bodies.append(to_bytes(array, dtype, name=name))
            described.append([name, dtype.name, array.shape, len(bodies[-1])])
        text = json.dumps({**head, "tensors": described}).encode()
        with self._sending:
            self._socket.sendall(_LENGTH.pack(len(text)) + text)
            for body in bodies:
                self._socket.sendall(body)

    def receive(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """Wait for the next message; on one thread only.

        Raises:
            EOFError: The other end is gone.
            OSError: The connection broke.
            ValueError: What came is no message.
        """
        (length,) = _LENGTH.unpack(self._exactly(_LENGTH.size))
        if length > _MOST:
            raise ValueError(f"a message's head claims {length} bytes")
        head = json.loads(self._exactly(length))
        try:
            tensors = {name: self._tensor(name, dtype, shape, size) for name, dtype, shape, size in head["tensors"]}
        except (KeyError, TypeError, InvalidArgument) as error:
            raise ValueError(f"a message has tensors that are none: {error}") from None
        return head, tensors

    def close(self) -> None:
        """Hang up; a `receive` that waits ends."""
        with suppress(OSError):  # the other end was quicker
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _tensor(self, name: str, dtype: str, shape: list[int], size: int) -> Array:
        return from_bytes(self._exactly(size), DType[dtype], shape, name=name)

    def _exactly(self, size: int) -> bytearray:
        received = bytearray(size)
        view = memoryview(received)
        while view:
            count = self._socket.recv_into(view)
            if not count:
                raise EOFError("the other end is gone")
            view = view[count:]
        return received
