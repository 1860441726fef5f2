"""When a call is over and when it may be repeated; sleeps nowhere and sends nothing."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass

from tidemill.errors import DeadlineExceeded, Unavailable

__all__ = ["Attempts", "NotRun", "Policy"]

_FIRST_SECONDS, _LONGEST_SECONDS = 0.05, 2.0


class NotRun(Unavailable):
    """The server could not be reached, or refused the request: it has not run and may be sent again."""


@dataclass(frozen=True, slots=True)
class Policy:
    """What a caller allows.

    Attributes:
        timeout: Seconds for all attempts together; None for no limit.
        retries: How often to repeat.
        repeatable: Whether a request that may have run may be sent again.
    """

    timeout: float | None = None
    retries: int = 0
    repeatable: bool = False


class Attempts:
    """The attempts of one call."""

    def __init__(self, policy: Policy, clock: Callable[[], float] = time.monotonic) -> None:
        self._policy = policy
        self._clock = clock
        self._end = None if policy.timeout is None else clock() + policy.timeout
        self._failed = 0

    def left(self) -> float | None:
        """Seconds that are left, None for no limit; DeadlineExceeded if none are."""
        if self._end is None:
            return None
        left = self._end - self._clock()
        if left <= 0:
            raise DeadlineExceeded(f"no answer within {self._policy.timeout} s")
        return left

    def delay(self, error: Unavailable) -> float:
        """Seconds to wait before the next attempt: doubled each time, and spread, so that clients do not come at once.

        Raises:
            Unavailable: `error`, if the call may not be repeated or would end too late.
        """
        self._failed += 1
        safe = isinstance(error, NotRun) or self._policy.repeatable
        if not safe or self._failed > self._policy.retries:
            raise error
        longest = min(_LONGEST_SECONDS, _FIRST_SECONDS * 2**self._failed)
        delay = random.uniform(longest / 2, longest)
        if self._end is not None and self._clock() + delay >= self._end:
            raise error
        return delay
