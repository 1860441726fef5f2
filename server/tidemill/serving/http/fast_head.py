"""Which requests are plain enough for the fast lane, by their first line and headers; knows no sockets."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from tidemill.errors import InvalidArgument
from tidemill.protocol import rest
from tidemill.serving.http.shown_key import shown_key
from tidemill.serving.request_id import HEADER, read_request_id

__all__ = ["Head", "Target", "read_head", "read_target"]

# Whatever a router would decode, cut or refuse is left to the router.
_PATH = re.compile(rb"/v2/models/([A-Za-z0-9_.~-]+)(?:/versions/([A-Za-z0-9_.~-]+))?/infer")
_HEADER_LENGTH = rest.HEADER_LENGTH.lower().encode()
_ENCODINGS = b"accept-encoding"
_KEYS = (b"authorization", b"x-api-key")
_ID = HEADER.encode()
# What a header may say; None stands for anything, and one with no choice sends its request the other way.
_SPECIAL: dict[bytes, frozenset[bytes] | None] = {
    b"content-length": None,
    _HEADER_LENGTH: None,
    _ENCODINGS: None,
    **dict.fromkeys((*_KEYS, _ID)),
    b"content-type": frozenset((b"application/json", b"application/octet-stream")),
    b"accept": frozenset((b"*/*", b"application/json", b"application/json, */*")),
    **dict.fromkeys((b"content-encoding", b"transfer-encoding", b"expect", b"upgrade", b"trailer"), frozenset()),
}


class Target(NamedTuple):
    """A model, and its version if one was named."""

    model: str
    version: str


class Head(NamedTuple):
    """What a plain request says before its body.

    Attributes:
        size: Bytes of the body.
        json_length: Bytes of its JSON part; None if it is all JSON.
        accepted: The encodings that the answer may have, as the client lists them.
        key: The API key that it shows; None if none.
        request_id: The id that its caller gave it; "" for none.
    """

    size: int
    json_length: int | None
    accepted: str
    key: str | None = None
    request_id: str = ""


def read_target(url: bytes) -> Target | None:
    """The model that a path asks to run; None if it is another path or not a plain one."""
    found = _PATH.fullmatch(url)
    return Target(found[1].decode(), (found[2] or b"").decode()) if found else None


def read_head(headers: Iterable[tuple[bytes, bytes]]) -> Head | None:
    """Read headers, their names in lower case; None if they ask for anything out of the ordinary."""
    found: dict[bytes, bytes] = {}
    for name, value in headers:
        if name not in _SPECIAL:
            continue
        allowed = _SPECIAL[name]
        if name in found or (allowed is not None and value not in allowed):
            return None
        found[name] = value
    size, length = found.get(b"content-length"), found.get(_HEADER_LENGTH)
    json_length = None if length is None else _json_length(length)
    if size is None or json_length == 0:
        return None
    accepted = found.get(_ENCODINGS, b"").decode("latin-1")
    key = shown_key((name, found[name]) for name in _KEYS if name in found)
    return Head(int(size), json_length, accepted, key, read_request_id(found.get(_ID, b"").decode("latin-1")))


def _json_length(value: bytes) -> int:
    """The length of the JSON part; 0 if there is none, or if it is wrong."""
    try:
        return rest.parse_header_length(value.decode("latin-1")) or 0
    except InvalidArgument:
        return 0
