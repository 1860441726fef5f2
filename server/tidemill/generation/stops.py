"""Texts that end a generation, found although they come in pieces; knows no tokens."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["StopFinder"]


class StopFinder:
    """Lets text through as soon as no stop text can begin in it any more."""

    def __init__(self, stops: Sequence[str]) -> None:
        """Look for these texts; for none everything passes at once."""
        self._stops = tuple(stops)
        self._held = ""

    def feed(self, text: str) -> tuple[str, bool]:
        """Take in more text.

        Returns:
            What is certain, and whether a stop text was found; it and what comes after it are left out.
        """
        if not self._stops:
            return text, False
        whole = self._held + text
        found = [place for stop in self._stops if (place := whole.find(stop)) >= 0]
        if found:
            self._held = ""
            return whole[: min(found)], True
        held = max(_overlap(whole, stop) for stop in self._stops)
        certain = len(whole) - held
        self._held = whole[certain:]
        return whole[:certain], False

    def rest(self) -> str:
        """What was held back, once there is no more text."""
        held, self._held = self._held, ""
        return held


def _overlap(text: str, stop: str) -> int:
    """How many characters at the end of `text` are the beginning of `stop`."""
    longest = min(len(text), len(stop) - 1)
    return next((size for size in range(longest, 0, -1) if text.endswith(stop[:size])), 0)
