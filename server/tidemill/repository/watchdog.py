"""Notices runs that do not end; knows models by how long they have been running, and nothing of why."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable

from tidemill.repository.served import ServedModel

__all__ = ["Watchdog"]

_LOG = logging.getLogger("tidemill.repository")
_LOOKS_PER_LIMIT = 4
_SELDOM = 1.0


class Watchdog:
    """Says of a served model that it is stalled, and that it is so no longer."""

    def __init__(
        self, models: Callable[[], Iterable[ServedModel]], limit: float, on_change: Callable[[], None]
    ) -> None:
        """Begin without looking.

        Args:
            models: What is served now.
            limit: Seconds that a run may take.
            on_change: Called after a model has stalled or has gone on.
        """
        self._models = models
        self._limit = limit
        self._on_change = on_change

    async def watch(self) -> None:
        """Look for ever: each second, or more often where the limit is shorter than some of them."""
        while True:
            await asyncio.sleep(min(_SELDOM, self._limit / _LOOKS_PER_LIMIT))
            self.look()

    def look(self) -> None:
        """Compare each model's longest run with the limit."""
        changed = [served for served in self._models() if (served.longest_run > self._limit) != bool(served.stalled)]
        for served in changed:
            self._tell(served)
        if changed:
            self._on_change()

    def _tell(self, served: ServedModel) -> None:
        name = f"model {served.name!r} version {served.version}"
        if served.stalled:
            served.stalled = ""
            _LOG.warning("%s goes on: its run has ended", name)
        else:
            served.stalled = f"a run has not ended within {self._limit:g} s (stuck_after_seconds)"
            _LOG.error("%s is stuck: %s", name, served.stalled)
