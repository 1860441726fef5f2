"""A memory of limited size; knows nothing of what it remembers."""

from __future__ import annotations

from typing import Generic, TypeVar

__all__ = ["Bounded"]

_K = TypeVar("_K")
_V = TypeVar("_V")

_ENTRIES = 1024


class Bounded(Generic[_K, _V]):
    """A mapping that forgets its oldest entry when it is full."""

    def __init__(self, limit: int = _ENTRIES) -> None:
        self._entries: dict[_K, _V] = {}
        self._limit = limit
        self.get = self._entries.get

    def put(self, key: _K, value: _V) -> None:
        """Add an entry."""
        if len(self._entries) >= self._limit:
            self._entries.pop(next(iter(self._entries)), None)
        self._entries[key] = value

    def clear(self) -> None:
        """Forget everything."""
        self._entries.clear()
