"""One line of a repository's index, as both wires list it; knows nothing of how models are kept."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["ModelIndex"]


@dataclass(frozen=True, slots=True)
class ModelIndex:
    """A model version that the repository knows.

    Attributes:
        name: The model.
        version: The version number as text; "" for a model that has never been loaded.
        state: UNKNOWN, READY, UNAVAILABLE, LOADING or UNLOADING; "" for a model that has never been loaded.
        reason: Why it is in this state, "" if there is nothing to say.
    """

    name: str
    version: str = ""
    state: str = ""
    reason: str = ""
