"""Answers given in the order in which requests came; knows nothing of how they are made."""

from __future__ import annotations

from collections import deque

from tidemill.batching.isolation import Outcome
from tidemill.batching.pending import Pending
from tidemill.errors import TidemillError

__all__ = ["Order", "settle"]


class Order:
    """Holds answers back until all earlier requests have theirs, or are gone."""

    def __init__(self) -> None:
        self._line: deque[Pending] = deque()
        self._held: dict[Pending, Outcome] = {}

    def admit(self, pending: Pending) -> None:
        """Put a request at the end of the line."""
        self._line.append(pending)

    def settle(self, pending: Pending, outcome: Outcome) -> None:
        """Answer a request as soon as it is its turn."""
        if not pending.abandoned:
            self._held[pending] = outcome
        self.advance()

    def advance(self) -> None:
        """Answer those whose turn has come, for example because one before them is gone."""
        while self._line and (self._line[0].abandoned or self._line[0] in self._held):
            first = self._line.popleft()
            outcome = self._held.pop(first, None)
            if outcome is not None:
                settle(first, outcome)


def settle(pending: Pending, outcome: Outcome) -> None:
    """Answer a request, unless its caller is gone or was answered."""
    if pending.abandoned:
        return
    if isinstance(outcome, TidemillError):
        pending.future.set_exception(outcome)
    else:
        pending.future.set_result(outcome)
