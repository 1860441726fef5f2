"""Requests whose tensors lie in shared memory: one object, registered with the server for as long as the load runs."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from tidemill.bench.encoding import encode_shared, tensor_bytes
from tidemill.bench.settings import Settings
from tidemill.errors import ConfigError
from tidemill.protocol.types import Array, RegionSlice

__all__ = ["Registrar", "shared_requests"]

_ROOT = Path("/dev/shm")
_ALIGNMENT = 64
_NAME = "tidemill-bench"

Answer = Callable[[Mapping[str, Array]], Mapping[str, Array]]
"""Asks the server once, to learn how large its answers are."""


class Registrar(Protocol):
    """Tells the server of shared memory."""

    def register(self, name: str, key: str, byte_size: int) -> None:
        """Register a region."""

    def unregister(self, name: str) -> None:
        """Forget it."""


@contextmanager
def shared_requests(
    settings: Settings, feeds: Sequence[Mapping[str, Array]], answer: Answer, registrar: Registrar
) -> Iterator[list[bytes]]:
    """Requests for "shm"; inputs and outputs of each have a place of their own.

    Raises:
        ConfigError: This system has no shared memory.
        TidemillError: The server does not take it; its text says why.
    """
    if not _ROOT.is_dir():
        raise ConfigError(f"shared memory needs {_ROOT}, which this system does not have")
    name = f"{_NAME}-{os.getpid()}"
    layout = _Layout(name)
    requests = [_place(settings, feed, answer, layout) for feed in feeds]
    path = _ROOT / name
    try:
        path.write_bytes(b"")
        with path.open("r+b") as file:
            file.truncate(layout.end)
            for offset, data in layout.pieces:
                file.seek(offset)
                file.write(data)
        registrar.register(name, f"/{name}", layout.end)
        try:
            yield requests
        finally:
            registrar.unregister(name)
    finally:
        path.unlink(missing_ok=True)


class _Layout:
    """Places in the region, one after the other."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.end = 0
        self.pieces: list[tuple[int, bytes | memoryview]] = []

    def add(self, size: int) -> RegionSlice:
        place = RegionSlice(self._name, size, self.end)
        self.end += size + -size % _ALIGNMENT
        return place

    def fill(self, data: bytes | memoryview) -> RegionSlice:
        self.pieces.append((self.end, data))
        return self.add(len(data))


def _place(settings: Settings, feed: Mapping[str, Array], answer: Answer, layout: _Layout) -> bytes:
    inputs = {name: layout.fill(tensor_bytes(name, array)) for name, array in feed.items()}
    outputs = {name: layout.add(len(tensor_bytes(name, array))) for name, array in answer(feed).items()}
    return encode_shared(settings, feed, inputs, outputs)
