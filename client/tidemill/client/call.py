"""One question to a server, ready to send, and how to read its answer; the same for both wires."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from tidemill.protocol.index import ModelIndex
from tidemill.protocol.types import Array, InferRequest, ModelMetadata, ServerMetadata

__all__ = ["Call", "Wire"]

T = TypeVar("T")
Part = bytes | bytearray | memoryview


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """What the transports of one wire send.

    Attributes:
        target: The HTTP method and path, or the name of the RPC.
        parts: The body, in pieces.
        read: Makes the answer of the transport's reply, or raises the server's error.
        headers: HTTP headers of this call alone, as lines that each end in a line break.
        repeatable: Whether it may be sent again although it may have run.
    """

    target: str
    read: Callable[[Any], T]
    parts: Sequence[Part] = ()
    headers: str = ""
    repeatable: bool = True


class Wire(Protocol):
    """What both wires can ask."""

    def infer(self, request: InferRequest) -> Call[dict[str, Array]]:
        """Run a model."""

    def metadata(self, model: str, version: str) -> Call[ModelMetadata]:
        """A model's signature."""

    def server_metadata(self) -> Call[ServerMetadata]:
        """Name and version of the server."""

    def ready(self, model: str, version: str) -> Call[bool]:
        """Whether a model takes requests; the server itself if no model is named."""

    def index(self) -> Call[tuple[ModelIndex, ...]]:
        """The models of the repository."""
