"""When models are loaded, and on whose word; plain settings."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["RepositoryControl"]


@dataclass(frozen=True, slots=True)
class RepositoryControl:
    """What decides which models are served.

    Attributes:
        start: The models to load at the start; None for all.
        poll_seconds: How often the folders are looked at for changes, which are loaded once a folder has been left
            alone for as long; 0 for never. While they are, nobody else may load or unload.
        restart_seconds: How long a model that broke is left alone before it is loaded again; if that was in vain,
            twice as long, and so on.
    """

    start: tuple[str, ...] | None = None
    poll_seconds: float = 0.0
    restart_seconds: float = 1.0

    def starts(self, name: str) -> bool:
        """Whether a model is loaded at the start."""
        return self.start is None or name in self.start
