"""Threads that stand back behind others on the same processors; knows no session."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

__all__ = ["run_nicely", "stand_back"]

_T = TypeVar("_T")


def stand_back(niceness: int) -> None:
    """Let the scheduler prefer others to the calling thread, for good: only a privileged process could take it back.

    On Linux each thread has a niceness of its own, which threads that it starts inherit; elsewhere nothing happens.

    Args:
        niceness: 0 to 19, added to what the thread has; each step gives up about a tenth of its share (`nice(2)`).
    """
    if niceness and sys.platform == "linux":
        thread = threading.get_native_id()
        os.setpriority(os.PRIO_PROCESS, thread, os.getpriority(os.PRIO_PROCESS, thread) + niceness)


def run_nicely(niceness: int, function: Callable[[], _T]) -> _T:
    """Call a function on a new thread that stands back, so that the threads that it starts do so too."""
    with ThreadPoolExecutor(1, initializer=stand_back, initargs=(niceness,)) as thread:
        return thread.submit(function).result()
