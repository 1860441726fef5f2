"""What a transport does with one connection, without its bytes: the protocol of a wire, as a driver sees it."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from tidemill.client.call import Call, Part

__all__ = ["Link", "Links", "Steps"]

Steps: TypeAlias = Generator[list[Part] | memoryview, int, Any]
"""The driver sends each list that it is given, and fills each memoryview, telling how many bytes came (0 at the end).

What it returns is what the call reads. A ConnectionError of sending is thrown into it.
"""


class Link(Protocol):
    """One connection, which takes one call at a time.

    Attributes:
        reusable: Whether the connection can take another call.
    """

    reusable: bool

    def steps(self, call: Call[Any], seconds: float | None) -> Steps:
        """Send a call, then read to the end of its answer; the server may be told how long the caller waits."""

    def absorb(self, data: bytes) -> bool:
        """Take in what came although nothing was asked; whether the connection still stands."""


@dataclass(frozen=True, slots=True)
class Links:
    """How connections to one server are spoken on.

    Attributes:
        open: Makes the link of a new connection.
        alpn: The protocol's name, where it must be agreed upon with TLS; "" if not.
    """

    open: Callable[[], Link]
    alpn: str = ""
