"""Which of the user's lines is being executed while the authoring rooms work for it."""

from __future__ import annotations

import sys

__all__ = ["user_line"]

_OWN_ROOMS = ("tidemill.graph", "tidemill.nn")


def user_line() -> str:
    """The line outside of the authoring rooms that is being executed, as "module:line"."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(_OWN_ROOMS):
        frame = frame.f_back
    return f"{frame.f_globals.get('__name__', '?')}:{frame.f_lineno}"
