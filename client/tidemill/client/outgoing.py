"""What of a gRPC message may be sent now: HTTP/2's windows (RFC 9113, 5.2); knows no connection and no answers."""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Sequence

from tidemill.client.call import Part
from tidemill.errors import TooLarge
from tidemill.protocol.http2 import END_STREAM, ConnectionFault, Fault, Frame, Setting

__all__ = ["MAX_WINDOW", "Outgoing"]

MAX_WINDOW = 2**31 - 1
_LARGEST_MESSAGE = 2**32 - 1
_LEAST_FRAME, _MOST_FRAME = 1 << 14, (1 << 24) - 1
_BURST = 1 << 18
_HEAD = struct.Struct(">IBI")
_DATA = int(Frame.DATA)


class Outgoing:
    """The message that is being sent on a connection, and how much of it the server takes."""

    def __init__(self) -> None:
        self._connection = self._initial = self._window = 65_535
        self._frame = _LEAST_FRAME
        self._stream = 0
        self._parts: deque[memoryview] = deque()
        self._left = 0

    @property
    def is_done(self) -> bool:
        """Whether all of it was sent."""
        return self._left == 0

    @property
    def can_send(self) -> bool:
        """Whether some of it may be sent now."""
        return self._left > 0 and self._window > 0 and self._connection > 0

    def start(self, stream: int, parts: Sequence[Part]) -> None:
        """A message in pieces, which gets its length in front.

        Raises:
            TooLarge: gRPC has no room for its length.
        """
        size = sum(map(len, parts))
        if size > _LARGEST_MESSAGE:
            raise TooLarge(f"the request has {size} bytes; a message of gRPC has at most {_LARGEST_MESSAGE}; use HTTP")
        self._stream, self._window, self._left = stream, self._initial, size + 5
        self._parts = deque([memoryview(struct.pack(">BI", 0, size)), *[memoryview(part) for part in parts]])

    def give_up(self) -> None:
        """Send no more of it."""
        self._parts.clear()
        self._left = 0

    def take(self) -> bytes:
        """The next frames, copied once, so that a large message takes few calls of the system."""
        pieces: list[Part] = []
        burst = _BURST if self._left else 0
        while burst > 0 and self.can_send:
            size = min(self._frame, self._window, self._connection, self._left)
            self._window -= size
            self._connection -= size
            self._left -= size
            burst -= size
            pieces.append(_HEAD.pack(size << 8 | _DATA, 0 if self._left else END_STREAM, self._stream))
            if self._left:
                self._cut(size, pieces)
            else:
                pieces += self._parts
                self._parts.clear()
        return b"".join(pieces)

    def widen(self, stream: int, more: int) -> None:
        """Take in a WINDOW_UPDATE."""
        if not stream:
            self._connection += more
        elif stream == self._stream:
            self._window += more
        if max(self._connection, self._window) > MAX_WINDOW:
            raise ConnectionFault(Fault.FLOW_CONTROL_ERROR, "a window overflows")

    def apply(self, key: int, value: int) -> None:
        """Take in one of the server's settings."""
        if key == Setting.INITIAL_WINDOW_SIZE:
            self._window += value - self._initial
            self._initial = value
        elif key == Setting.MAX_FRAME_SIZE:
            if not _LEAST_FRAME <= value <= _MOST_FRAME:
                raise ConnectionFault(Fault.PROTOCOL_ERROR, "the frame size is out of range")
            self._frame = value

    def _cut(self, size: int, pieces: list[Part]) -> None:
        while size:
            part = self._parts.popleft()
            if len(part) > size:
                self._parts.appendleft(part[size:])
                part = part[:size]
            pieces.append(part)
            size -= len(part)
