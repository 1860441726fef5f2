"""How a run that nobody waits for any more is told to end; knows nothing of what runs."""

from __future__ import annotations

import threading
from collections.abc import Callable

__all__ = ["Cancel"]


class Cancel:
    """Set on one thread, it stops what another has attached."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stop: Callable[[], None] | None = None
        self._cancelled = False

    @property
    def cancelled(self) -> bool:
        """Whether it was set."""
        return self._cancelled

    def attach(self, stop: Callable[[], None]) -> None:
        """Have `stop` called, from any thread, when it is set: at once if it is set already."""
        with self._lock:
            self._stop = stop
            if self._cancelled:
                stop()

    def set(self) -> None:
        """Stop what is attached, or whatever will be."""
        with self._lock:
            self._cancelled = True
            if self._stop:
                self._stop()
