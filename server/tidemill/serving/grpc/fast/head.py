"""What a gRPC call says before its message, out of its header block; knows no connection and no service."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Sequence
from typing import NamedTuple
from urllib.parse import quote

from tidemill.protocol.http2 import literal

__all__ = ["OK_TRAILERS", "RESPONSE_HEADERS", "Head", "metadata_block", "read_head", "refusal", "trailers"]

_SECONDS = {"H": 3600.0, "M": 60.0, "S": 1.0, "m": 1e-3, "u": 1e-6, "n": 1e-9}
_TIMEOUT = re.compile(r"(\d{1,8})([HMSmun])")
_OWN = frozenset(("te", "content-type", "user-agent", "connection", "host", "content-length"))
_PSEUDO = frozenset((":method", ":path", ":scheme", ":authority"))
_STATUS_200 = b"\x88"  # entry 8 of the static table (RFC 7541, appendix A)
RESPONSE_HEADERS = (
    _STATUS_200 + literal(b"content-type", b"application/grpc") + literal(b"grpc-accept-encoding", b"identity")
)
OK_TRAILERS = literal(b"grpc-status", b"0")


class Head(NamedTuple):
    """The head of one call.

    Attributes:
        path: The full method name.
        timeout: Seconds until the caller's deadline; None for none.
        encoding: How its messages are compressed; "identity" for not.
        metadata: What the caller sends beside, in order; values of `-bin` names are bytes.
        fault: The HTTP status that refuses what is no gRPC call; 0 if it is one.
    """

    path: str
    timeout: float | None
    encoding: str
    metadata: tuple[tuple[str, str | bytes], ...]
    fault: int = 0


def read_head(headers: Sequence[tuple[str, str]]) -> Head | None:
    """Read decoded headers; None if they are malformed (RFC 9113, section 8.1.1)."""
    pseudo: dict[str, str] = {}
    fields: dict[str, str] = {}
    metadata: list[tuple[str, str | bytes]] = []
    for name, value in headers:
        if name != name.lower() or (name.startswith(":") and (fields or metadata or name in pseudo)):
            return None
        if name.startswith(":"):
            pseudo[name] = value
        elif name in _OWN or name.startswith("grpc-"):
            fields[name] = value
        else:
            metadata.append((name, _value(name, value)))
    if pseudo.keys() - _PSEUDO or _PSEUDO - pseudo.keys() - {":authority"}:
        return None
    if "connection" in fields or fields.get("te", "trailers") != "trailers":
        return None
    encoding = fields.get("grpc-encoding", "identity")
    return Head(pseudo[":path"], _timeout(fields), encoding, tuple(metadata), _fault(pseudo, fields))


_YEAR = 365 * 86400.0
"""No caller waits longer, and grpcio takes what is much longer for something past."""


def trailers(code: int, text: str, metadata: Sequence[tuple[str, str | bytes]] = ()) -> bytes:
    """The header block that ends a call; texts travel percent-encoded."""
    message = literal(b"grpc-message", quote(text, safe=" !#$&'()*+,/:;=?@[]\"<>{}|^`").encode()) if text else b""
    return literal(b"grpc-status", b"%d" % code) + message + metadata_block(metadata)


def refusal(status: int) -> bytes:
    """The header block that answers what is no gRPC call."""
    return literal(b":status", b"%d" % status)


def metadata_block(metadata: Sequence[tuple[str, str | bytes]]) -> bytes:
    """Metadata as header fields; bytes travel as base64."""
    return b"".join(
        literal(name.encode(), base64.b64encode(value) if isinstance(value, bytes) else value.encode("latin-1"))
        for name, value in metadata
    )


def _value(name: str, value: str) -> str | bytes:
    if not name.endswith("-bin"):
        return value
    try:
        return base64.b64decode(value + "=" * (-len(value) % 4), validate=True)
    except (binascii.Error, ValueError):
        return b""


def _timeout(fields: dict[str, str]) -> float | None:
    found = _TIMEOUT.fullmatch(fields.get("grpc-timeout", ""))
    return min(int(found[1]) * _SECONDS[found[2]], _YEAR) if found else None


def _fault(pseudo: dict[str, str], fields: dict[str, str]) -> int:
    if pseudo[":method"] != "POST":
        return 405
    return 0 if fields.get("content-type", "").startswith("application/grpc") else 415
