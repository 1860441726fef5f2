"""A bell for whoever watches the server's or a model's readiness; knows nothing of what has changed."""

from __future__ import annotations

import asyncio

__all__ = ["Changes"]


class Changes:
    """Wakes all who wait at every change; belongs to one event loop."""

    def __init__(self) -> None:
        self._next = asyncio.Event()

    def announce(self) -> None:
        """Wake those who wait now."""
        changed, self._next = self._next, asyncio.Event()
        changed.set()

    async def wait(self) -> None:
        """Return at the next change."""
        await self._next.wait()
