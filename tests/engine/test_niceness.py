from __future__ import annotations

import os
import sys
import threading

import pytest

from tidemill.engine.niceness import run_nicely

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="threads have no niceness of their own here")


def niceness() -> int:
    return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())


def test_threads_that_are_started_by_a_nice_one_are_nice_and_others_are_not() -> None:
    own = niceness()

    def work() -> list[int]:
        found = [niceness()]
        thread = threading.Thread(target=lambda: found.append(niceness()))
        thread.start()
        thread.join()
        return found

    expected = min(own + 7, 19)
    assert run_nicely(7, work) == [expected, expected]
    assert niceness() == own
    assert run_nicely(0, work) == [own, own]


def test_what_fails_there_fails_here() -> None:
    def fail() -> None:
        raise ValueError("no such model")

    with pytest.raises(ValueError, match="no such model"):
        run_nicely(3, fail)
