"""How much may be sent to an HTTP/2 peer, and what waits until more may (RFC 9113, section 5.2); knows no messages."""

from __future__ import annotations

from collections.abc import Callable

from tidemill.protocol.http2 import (
    END_HEADERS,
    END_STREAM,
    ConnectionFault,
    Fault,
    Frame,
    Setting,
    StreamFault,
    frame,
)

__all__ = ["MAX_WINDOW", "SendWindows"]

MAX_WINDOW = 2**31 - 1
_LEAST_FRAME, _MOST_FRAME = 1 << 14, (1 << 24) - 1


class _Waiting:
    """What a stream has to send, and the header block that ends it, if any."""

    def __init__(self) -> None:
        self.data = memoryview(b"")
        self.more: list[bytes] = []
        self.trailers: bytes | None = None


class SendWindows:
    """The windows of one connection and its streams."""

    def __init__(self, write: Callable[[bytes], None]) -> None:
        self._write = write
        self._connection = 65535
        self._initial = 65535
        self._frame = _LEAST_FRAME
        self._streams: dict[int, int] = {}
        self._waiting: dict[int, _Waiting] = {}
        self.on_drained: dict[int, Callable[[], None]] = {}

    def open(self, stream: int) -> None:
        """A stream begins."""
        self._streams[stream] = self._initial

    def close(self, stream: int) -> None:
        """It has ended; what it still had to send is dropped."""
        self._streams.pop(stream, None)
        self._waiting.pop(stream, None)
        self.on_drained.pop(stream, None)

    def fits(self, stream: int, size: int) -> bool:
        """Whether so many bytes could be sent now in one frame; takes them off the windows if so."""
        if stream in self._waiting or size > self._frame or min(self._connection, self._streams.get(stream, 0)) < size:
            return False
        self._connection -= size
        self._streams[stream] -= size
        return True

    def send(self, stream: int, data: bytes, trailers: bytes | None = None) -> bool:
        """Send data, then the trailers, as soon as the peer takes them; whether all was sent now."""
        if stream not in self._streams:
            return True
        waiting = self._waiting.setdefault(stream, _Waiting())
        if data:
            waiting.more.append(data)
        waiting.trailers = trailers
        return self._drain(stream)

    def widen(self, stream: int, more: int) -> None:
        """Take in a WINDOW_UPDATE.

        Raises:
            ConnectionFault: It is no increment, or the connection's window overflows.
            StreamFault: A stream's does.
        """
        if not stream:
            if not more:
                raise ConnectionFault(Fault.PROTOCOL_ERROR, "a window update of 0")
            self._connection += more
            if self._connection > MAX_WINDOW:
                raise ConnectionFault(Fault.FLOW_CONTROL_ERROR, "the connection's window overflows")
            self._drain_all()
        elif stream in self._streams:
            self._widen_stream(stream, more)

    def apply(self, key: int, value: int) -> None:
        """Take in one of the peer's settings.

        Raises:
            ConnectionFault: It is out of range.
        """
        if key == Setting.INITIAL_WINDOW_SIZE:
            if value > MAX_WINDOW:
                raise ConnectionFault(Fault.FLOW_CONTROL_ERROR, "the initial window is over 2^31-1")
            change, self._initial = value - self._initial, value
            for stream in self._streams:
                self._streams[stream] += change
            self._drain_all()
        elif key == Setting.MAX_FRAME_SIZE:
            if not _LEAST_FRAME <= value <= _MOST_FRAME:
                raise ConnectionFault(Fault.PROTOCOL_ERROR, "the frame size is out of range")
            self._frame = value
        elif key == Setting.ENABLE_PUSH and value > 1:
            raise ConnectionFault(Fault.PROTOCOL_ERROR, "ENABLE_PUSH is 0 or 1")

    def _widen_stream(self, stream: int, more: int) -> None:
        if not more:
            raise StreamFault(stream, Fault.PROTOCOL_ERROR)
        self._streams[stream] += more
        if self._streams[stream] > MAX_WINDOW:
            raise StreamFault(stream, Fault.FLOW_CONTROL_ERROR)
        if stream in self._waiting:
            self._drain(stream)

    def _drain_all(self) -> None:
        for stream in list(self._waiting):
            if self._connection > 0:
                self._drain(stream)

    def _drain(self, stream: int) -> bool:
        waiting = self._waiting[stream]
        while waiting.data or waiting.more:
            if not waiting.data:
                waiting.data = memoryview(waiting.more.pop(0))
            size = min(self._frame, self._connection, self._streams[stream], len(waiting.data))
            if size <= 0:
                return False
            self._write(frame(Frame.DATA, 0, stream, waiting.data[:size]))
            waiting.data = waiting.data[size:]
            self._connection -= size
            self._streams[stream] -= size
        del self._waiting[stream]
        if waiting.trailers is not None:
            self._write(frame(Frame.HEADERS, END_HEADERS | END_STREAM, stream, waiting.trailers))
        if drained := self.on_drained.pop(stream, None):
            drained()
        return True
