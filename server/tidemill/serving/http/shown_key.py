"""The API key that a request's headers show; knows nothing of who may do what."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["shown_key"]

_BEARER = b"bearer "


def shown_key(headers: Iterable[tuple[bytes, bytes]]) -> str | None:
    """The key that a request's headers show, by either of the two usual names."""
    for name, value in headers:
        if name == b"x-api-key":
            return value.decode("latin-1")
        if name == b"authorization" and value[: len(_BEARER)].lower() == _BEARER:
            return value[len(_BEARER) :].strip().decode("latin-1")
    return None
