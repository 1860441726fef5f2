"""One HTTP/2 connection: frames in, frames out, windows, limits; knows streams as objects and nothing of gRPC calls."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from typing import Any, Protocol, cast

from hpack import Decoder, HPACKError
from hpack.exceptions import OversizedHeaderListError

from tidemill.protocol.bounded import Bounded
from tidemill.protocol.http2 import (
    ACK,
    END_HEADERS,
    END_STREAM,
    PADDED,
    PREFACE,
    PRIORITY,
    ConnectionFault,
    Fault,
    Frame,
    Setting,
    StreamFault,
    frame,
    settings,
    unpadded,
)
from tidemill.serving.grpc.fast.head import Head, read_head
from tidemill.serving.grpc.fast.window import MAX_WINDOW, SendWindows

__all__ = ["Connection", "Stream"]

_MAX_FRAME = 16384
_WINDOW = 1 << 20
_MAX_STREAMS = 1024
_MAX_HEADERS = 16 << 10
_MAX_BROKEN = 1000
"""Calls that the client broke off since the last one that was answered."""
_MAX_IDLE = 1000
"""Frames that carry nothing since the last one that did."""
_SETTINGS = settings(
    {
        # Without a table, equal header blocks are equal bytes and can be looked up.
        Setting.HEADER_TABLE_SIZE: 0,
        Setting.ENABLE_PUSH: 0,
        Setting.MAX_CONCURRENT_STREAMS: _MAX_STREAMS,
        Setting.INITIAL_WINDOW_SIZE: _WINDOW,
        Setting.MAX_HEADER_LIST_SIZE: _MAX_HEADERS,
    }
)


class Stream(Protocol):
    """One call, as its connection sees it."""

    def receive(self, data: bytes, *, ended: bool) -> None:
        """Take a part of the body; `ended` with the last one."""

    def cancel(self) -> None:
        """End the work: nobody waits for the answer any more."""


class Connection(asyncio.Protocol):
    """Implements the server's side of RFC 9113 without push and priorities."""

    def __init__(self, open_stream: Callable[[Connection, int, Head], Stream], connections: set[Connection]) -> None:
        self._open_stream = open_stream
        self._connections = connections
        self._transport: Any = None
        self._buffer = b""
        self._greeted = self._last = False
        self._decoder = Decoder(max_header_list_size=_MAX_HEADERS)
        self._heads: Bounded[bytes, Head] = Bounded()
        self._streams: dict[int, Stream] = {}
        self._receiving: dict[int, int] = {}
        self._highest = 0
        self._block: tuple[int, int, bytearray] | None = None
        self._used = 0
        self._broken = self._idle = 0
        self.windows = SendWindows(self.send)

    # What the transport calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Greet."""
        self._transport = cast(asyncio.Transport, transport)
        self._connections.add(self)
        self._write(_SETTINGS + frame(Frame.WINDOW_UPDATE, 0, 0, struct.pack(">I", _WINDOW - 65535)))

    def connection_lost(self, _error: Exception | None) -> None:
        """End the work for a client that is gone."""
        self._connections.discard(self)
        streams = list(self._streams.values())
        self._streams.clear()
        for stream in streams:
            stream.cancel()

    def pause_writing(self) -> None:
        """Read no further requests of a client that does not read its answers."""
        self._transport.pause_reading()

    def resume_writing(self) -> None:
        """Go on."""
        self._transport.resume_reading()

    def data_received(self, data: bytes) -> None:
        """Take what has arrived."""
        self._buffer = self._buffer + data if self._buffer else data
        try:
            self._take_frames()
        except ConnectionFault as fault:
            self._end(fault.code, str(fault))

    # What streams call

    def send(self, data: bytes) -> None:
        """Send frames that carry something."""
        self._idle = 0
        self._write(data)

    def finish(self, stream: int) -> None:
        """Forget a stream that was answered."""
        self._broken = 0
        self._forget(stream)

    def reset(self, stream: int, code: Fault) -> None:
        """End a stream in disorder."""
        self._write(frame(Frame.RST_STREAM, 0, stream, struct.pack(">I", code)))
        self._forget(stream)

    def consumed(self, stream: int, size: int) -> None:
        """Let the client send as much again on a stream."""
        if stream in self._receiving and size:
            self._receiving[stream] += size
            self._write(frame(Frame.WINDOW_UPDATE, 0, stream, struct.pack(">I", size)))

    # What the server calls

    def shutdown(self) -> None:
        """Take no more calls, and close when the last is answered."""
        if not self._last:
            self._last = True
            self._write(frame(Frame.GOAWAY, 0, 0, struct.pack(">II", self._highest, Fault.NO_ERROR)))
        self._close_if_done()

    def abort(self) -> None:
        """Close at once."""
        self._transport.abort()

    def _take_frames(self) -> None:
        data, place = self._buffer, 0
        if not self._greeted:
            if not PREFACE.startswith(data[: len(PREFACE)]):
                raise ConnectionFault(Fault.PROTOCOL_ERROR, "no HTTP/2 connection preface")
            if len(data) < len(PREFACE):
                return
            self._greeted, place = True, len(PREFACE)
        while len(data) - place >= 9 and not self._transport.is_closing():
            size = int.from_bytes(data[place : place + 3], "big")
            if size > _MAX_FRAME:
                raise ConnectionFault(Fault.FRAME_SIZE_ERROR, f"a frame of {size} bytes is over {_MAX_FRAME}")
            end = place + 9 + size
            if end > len(data):
                break
            self._take(data[place + 3], data[place + 4], data[place + 5 : place + 9], data[place + 9 : end])
            place = end
        self._buffer = data[place:]

    def _take(self, kind: int, flags: int, identifier: bytes, payload: bytes) -> None:
        stream = int.from_bytes(identifier, "big") & MAX_WINDOW
        if self._block is not None and (kind != Frame.CONTINUATION or stream != self._block[0]):
            raise ConnectionFault(Fault.PROTOCOL_ERROR, "a header block was interrupted")
        try:
            if take := _TAKERS.get(kind):
                take(self, flags, stream, payload)
        except StreamFault as fault:
            self._count_broken()
            live = self._streams.get(fault.stream)
            self.reset(fault.stream, fault.code)
            if live:
                live.cancel()

    def _take_data(self, flags: int, stream: int, payload: bytes) -> None:
        if not stream or stream > self._highest:
            raise ConnectionFault(Fault.PROTOCOL_ERROR, "data on a stream that is not open")
        self._use(len(payload))
        if stream not in self._receiving:
            raise StreamFault(stream, Fault.STREAM_CLOSED)
        self._receiving[stream] -= len(payload)
        if self._receiving[stream] < 0:
            raise StreamFault(stream, Fault.FLOW_CONTROL_ERROR)
        data = payload
        if flags & PADDED:
            data = unpadded(payload, flags)
            self.consumed(stream, len(payload) - len(data))
        if data:
            self._idle = 0
        elif not flags & END_STREAM:
            self._count_idle()
        self._deliver(stream, data, ended=bool(flags & END_STREAM))

    def _take_headers(self, flags: int, stream: int, payload: bytes) -> None:
        if not stream % 2:
            raise ConnectionFault(Fault.PROTOCOL_ERROR, "headers on a stream that no client may open")
        block = unpadded(payload, flags) if flags & PADDED else payload
        if flags & PRIORITY:
            if len(block) < 5:
                raise ConnectionFault(Fault.FRAME_SIZE_ERROR, "a priority is cut short")
            block = block[5:]
        if flags & END_HEADERS:
            self._take_block(flags, stream, block)
        else:
            self._block = (stream, flags, bytearray(block))

    def _take_continuation(self, flags: int, _stream: int, payload: bytes) -> None:
        if self._block is None:
            raise ConnectionFault(Fault.PROTOCOL_ERROR, "a continuation of nothing")
        stream, first, block = self._block
        block += payload
        if len(block) > _MAX_HEADERS:
            raise ConnectionFault(Fault.ENHANCE_YOUR_CALM, f"headers are over {_MAX_HEADERS} bytes")
        self._count_idle()
        if flags & END_HEADERS:
            self._block = None
            self._take_block(first, stream, bytes(block))

    def _take_block(self, flags: int, stream: int, block: bytes) -> None:
        head = self._decode(block)
        if stream <= self._highest:
            self._take_trailers(flags, stream)
            return
        self._highest = stream
        if head is None:
            raise StreamFault(stream, Fault.PROTOCOL_ERROR)
        if self._last or len(self._streams) >= _MAX_STREAMS:
            raise StreamFault(stream, Fault.REFUSED_STREAM)
        self._receiving[stream] = _WINDOW
        self.windows.open(stream)
        self._streams[stream] = self._open_stream(self, stream, head)
        if flags & END_STREAM:
            self._deliver(stream, b"", ended=True)

    def _take_trailers(self, flags: int, stream: int) -> None:
        if stream not in self._receiving:
            raise ConnectionFault(Fault.STREAM_CLOSED, "headers on a stream that was closed")
        if not flags & END_STREAM:
            raise StreamFault(stream, Fault.PROTOCOL_ERROR)
        self._deliver(stream, b"", ended=True)

    def _decode(self, block: bytes) -> Head | None:
        table = self._decoder.header_table
        plain = not table.dynamic_entries
        head = self._heads.get(block) if plain else None
        if head is not None:
            return head
        try:
            head = read_head([(str(name), str(value)) for name, value in self._decoder.decode(block)])
        except OversizedHeaderListError:
            raise ConnectionFault(Fault.ENHANCE_YOUR_CALM, f"headers are over {_MAX_HEADERS} bytes") from None
        except (HPACKError, UnicodeDecodeError):
            raise ConnectionFault(Fault.COMPRESSION_ERROR, "a header block cannot be decoded") from None
        if head and plain and not table.dynamic_entries and len(block) <= 1024:
            self._heads.put(block, head)
        return head

    def _take_priority(self, _flags: int, stream: int, payload: bytes) -> None:
        if not stream:
            raise ConnectionFault(Fault.PROTOCOL_ERROR, "a priority of no stream")
        self._count_idle()
        if len(payload) != 5:
            raise StreamFault(stream, Fault.FRAME_SIZE_ERROR)

    def _take_reset(self, _flags: int, stream: int, payload: bytes) -> None:
        if not stream or stream > self._highest:
            raise ConnectionFault(Fault.PROTOCOL_ERROR, "the reset of a stream that is idle")
        if len(payload) != 4:
            raise ConnectionFault(Fault.FRAME_SIZE_ERROR, "a reset has 4 bytes")
        self._count_broken()
        if live := self._streams.get(stream):
            self._forget(stream)
            live.cancel()

    def _take_settings(self, flags: int, stream: int, payload: bytes) -> None:
        if stream:
            raise ConnectionFault(Fault.PROTOCOL_ERROR, "settings of a stream")
        if len(payload) % 6 or (flags & ACK and payload):
            raise ConnectionFault(Fault.FRAME_SIZE_ERROR, "settings have 6 bytes each")
        if flags & ACK:
            self._decoder.max_allowed_table_size = 0
            return
        self._count_idle()
        for key, value in struct.iter_unpack(">HI", payload):
            self.windows.apply(key, value)
        self._write(frame(Frame.SETTINGS, ACK, 0))

    def _take_push(self, _flags: int, _stream: int, _payload: bytes) -> None:
        raise ConnectionFault(Fault.PROTOCOL_ERROR, "clients do not push")

    def _take_ping(self, flags: int, stream: int, payload: bytes) -> None:
        if stream:
            raise ConnectionFault(Fault.PROTOCOL_ERROR, "a ping on a stream")
        if len(payload) != 8:
            raise ConnectionFault(Fault.FRAME_SIZE_ERROR, "a ping has 8 bytes")
        if not flags & ACK:
            self._count_idle()
            self._write(frame(Frame.PING, ACK, 0, payload))

    def _take_goaway(self, _flags: int, stream: int, payload: bytes) -> None:
        if stream:
            raise ConnectionFault(Fault.PROTOCOL_ERROR, "a goodbye on a stream")
        if len(payload) < 8:
            raise ConnectionFault(Fault.FRAME_SIZE_ERROR, "a goodbye has 8 bytes or more")
        self._last = True
        self._close_if_done()

    def _take_window(self, _flags: int, stream: int, payload: bytes) -> None:
        if len(payload) != 4:
            raise ConnectionFault(Fault.FRAME_SIZE_ERROR, "a window update has 4 bytes")
        if stream > self._highest:
            raise ConnectionFault(Fault.PROTOCOL_ERROR, "a window update on a stream that is idle")
        self._count_idle()
        self.windows.widen(stream, int.from_bytes(payload, "big") & MAX_WINDOW)

    def _deliver(self, stream: int, data: bytes, *, ended: bool) -> None:
        if ended:
            del self._receiving[stream]
        if live := self._streams.get(stream):
            live.receive(data, ended=ended)

    def _use(self, size: int) -> None:
        """What all streams share is given back as it comes: each stream has a window of its own."""
        self._used += size
        if self._used > _WINDOW:
            raise ConnectionFault(Fault.FLOW_CONTROL_ERROR, "more data than the connection's window")
        if self._used > _WINDOW // 2:
            self._write(frame(Frame.WINDOW_UPDATE, 0, 0, struct.pack(">I", self._used)))
            self._used = 0

    def _count_broken(self) -> None:
        self._broken += 1
        if self._broken > _MAX_BROKEN:
            raise ConnectionFault(Fault.ENHANCE_YOUR_CALM, "too many calls are broken off")

    def _count_idle(self) -> None:
        self._idle += 1
        if self._idle > _MAX_IDLE:
            raise ConnectionFault(Fault.ENHANCE_YOUR_CALM, "too many frames that carry nothing")

    def _forget(self, stream: int) -> None:
        self._streams.pop(stream, None)
        self._receiving.pop(stream, None)
        self.windows.close(stream)
        self._close_if_done()

    def _close_if_done(self) -> None:
        if self._last and not self._streams:
            self._transport.close()

    def _end(self, code: Fault, text: str) -> None:
        self._write(frame(Frame.GOAWAY, 0, 0, struct.pack(">II", self._highest, code) + text.encode()))
        self._transport.close()

    def _write(self, data: bytes) -> None:
        """The transport gathers what is written in one turn."""
        if not self._transport.is_closing():
            self._transport.write(data)


_TAKERS: dict[int, Callable[[Connection, int, int, bytes], None]] = {
    Frame.DATA: Connection._take_data,
    Frame.HEADERS: Connection._take_headers,
    Frame.PRIORITY: Connection._take_priority,
    Frame.RST_STREAM: Connection._take_reset,
    Frame.SETTINGS: Connection._take_settings,
    Frame.PUSH_PROMISE: Connection._take_push,
    Frame.PING: Connection._take_ping,
    Frame.GOAWAY: Connection._take_goaway,
    Frame.WINDOW_UPDATE: Connection._take_window,
    Frame.CONTINUATION: Connection._take_continuation,
}
