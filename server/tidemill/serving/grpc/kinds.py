"""Infer messages that differ in nothing but their tensors: which are, and how their answers are given; knows no RPC."""

from __future__ import annotations

from collections.abc import Sequence

from google.protobuf.message import DecodeError

from tidemill.errors import TidemillError
from tidemill.protocol.alike import Alike, Bodies
from tidemill.protocol.bounded import Bounded
from tidemill.protocol.rpc_alike import RpcAlike, learn_rpc
from tidemill.serving.burst import Caller

__all__ = ["Kinds", "RpcKind"]

_LARGEST = 64 << 10
"""Bytes of a message up to which requests are answered together; a larger one takes its time by itself."""
_OFTEN = 2
"""Messages of a length from which on one is looked at: the second, the fourth, the eighth, ..."""
_PROBE = 256
"""Lone requests after which company is waited for once more."""
_LONGEST = 4096
"""Bytes before the tensors that are worth remembering."""


class RpcKind:
    """One kind of requests over gRPC; implements `burst.Kind`."""

    protocol = "grpc"

    def __init__(self, alike: Alike) -> None:
        self.alike = alike
        self.declined = False
        self._lone = 0

    @property
    def lonely(self) -> bool:
        """Whether requests came one by one of late, so that company is hardly worth waiting for."""
        return self._lone % _PROBE > 0

    def reply(self, callers: Sequence[Caller], bodies: Bodies, seconds: float) -> bool:  # noqa: ARG002
        """Answer each caller."""
        self._lone = 0 if len(callers) > 1 else self._lone + 1
        for caller, body in zip(callers, bodies[1], strict=True):
            caller.answer(body)
        return True


class Kinds:
    """The kinds that callers have repeated, by the bytes before their tensors."""

    def __init__(self) -> None:
        self._starts: Bounded[int, tuple[int, ...]] = Bounded()
        self._known: Bounded[bytes, RpcKind] = Bounded()
        self._seen: Bounded[int, int] = Bounded()

    def find(self, message: bytes) -> RpcKind | None:
        """The kind of a request; None if it has to be read by itself."""
        for start in self._starts.get(len(message), ()):
            kind = self._known.get(message[:start])
            if kind is not None:
                return None if kind.declined else kind
        return self._learn(message) if len(message) <= _LARGEST else None

    def _learn(self, message: bytes) -> RpcKind | None:
        """Understand what comes again; of lengths that never can be, less and less is tried."""
        size = len(message)
        seen = self._seen.get(size, 0) + 1
        self._seen.put(size, seen)
        if seen < _OFTEN or seen & (seen - 1):
            return None
        try:
            alike = learn_rpc(message)
        except (DecodeError, TidemillError):
            return None
        return self._remember(alike) if alike and len(alike.prefix) <= _LONGEST else None

    def _remember(self, alike: RpcAlike) -> RpcKind:
        start, starts = len(alike.prefix), self._starts.get(alike.size, ())
        if start not in starts:
            self._starts.put(alike.size, (start, *starts[:3]))
        kind = RpcKind(alike)
        self._known.put(alike.prefix, kind)
        return kind
