"""How many use something that is to be let go; knows not what."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["Hold"]


class Hold:
    """Counts users; belongs to one event loop."""

    def __init__(self) -> None:
        self._users = 0
        self._unused = asyncio.Event()
        self._unused.set()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Use it."""
        self._users += 1
        self._unused.clear()
        try:
            yield
        finally:
            self._users -= 1
            if not self._users:
                self._unused.set()

    async def released(self) -> None:
        """Return when nobody uses it."""
        await self._unused.wait()
