"""HTTP/2 frames (RFC 9113) as bytes; knows no connection, no stream and no gRPC."""

from __future__ import annotations

import struct
from enum import IntEnum

__all__ = [
    "ACK",
    "END_HEADERS",
    "END_STREAM",
    "PADDED",
    "PREFACE",
    "PRIORITY",
    "ConnectionFault",
    "Fault",
    "Frame",
    "Setting",
    "StreamFault",
    "frame",
    "literal",
    "settings",
    "unpadded",
]

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
END_STREAM = ACK = 0x1
END_HEADERS = 0x4
PADDED = 0x8
PRIORITY = 0x20


class Frame(IntEnum):
    """Frame types (section 6)."""

    DATA = 0
    HEADERS = 1
    PRIORITY = 2
    RST_STREAM = 3
    SETTINGS = 4
    PUSH_PROMISE = 5
    PING = 6
    GOAWAY = 7
    WINDOW_UPDATE = 8
    CONTINUATION = 9


class Setting(IntEnum):
    """Settings (section 6.5.2)."""

    HEADER_TABLE_SIZE = 1
    ENABLE_PUSH = 2
    MAX_CONCURRENT_STREAMS = 3
    INITIAL_WINDOW_SIZE = 4
    MAX_FRAME_SIZE = 5
    MAX_HEADER_LIST_SIZE = 6


class Fault(IntEnum):
    """Error codes (section 7)."""

    NO_ERROR = 0
    PROTOCOL_ERROR = 1
    INTERNAL_ERROR = 2
    FLOW_CONTROL_ERROR = 3
    STREAM_CLOSED = 5
    FRAME_SIZE_ERROR = 6
    REFUSED_STREAM = 7
    CANCEL = 8
    COMPRESSION_ERROR = 9
    ENHANCE_YOUR_CALM = 11


class ConnectionFault(Exception):
    """The peer broke the protocol; the connection ends."""

    def __init__(self, code: Fault, text: str) -> None:
        super().__init__(text)
        self.code = code


class StreamFault(Exception):
    """The peer broke the protocol on one stream, which ends."""

    def __init__(self, stream: int, code: Fault) -> None:
        super().__init__(f"stream {stream}: {code.name}")
        self.stream = stream
        self.code = code


def frame(kind: Frame, flags: int, stream: int, payload: bytes | memoryview = b"") -> bytes:
    """One frame."""
    return b"".join((struct.pack(">I", len(payload) << 8 | kind), bytes((flags,)), struct.pack(">I", stream), payload))


def settings(values: dict[Setting, int]) -> bytes:
    """A SETTINGS frame."""
    return frame(Frame.SETTINGS, 0, 0, b"".join(struct.pack(">HI", key, value) for key, value in values.items()))


def unpadded(payload: bytes, flags: int) -> bytes:
    """The payload of a frame without its padding (section 6.1).

    Raises:
        ConnectionFault: There is more padding than payload.
    """
    if not flags & PADDED:
        return payload
    if not payload or payload[0] >= len(payload):
        raise ConnectionFault(Fault.PROTOCOL_ERROR, "a frame has more padding than payload")
    return payload[1 : len(payload) - payload[0]]


def literal(name: bytes, value: bytes) -> bytes:
    """A header field as a literal that no table remembers (RFC 7541, section 6.2.2)."""
    return b"\x00" + _string(name) + _string(value)


def _string(text: bytes) -> bytes:
    """Without Huffman coding: a 7-bit prefix integer and the octets (RFC 7541, sections 5.1 and 5.2)."""
    size = len(text)
    if size < 0x7F:
        return bytes((size,)) + text
    parts, size = bytearray((0x7F,)), size - 0x7F
    while size >= 0x80:
        parts.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes(parts) + bytes((size,)) + text
