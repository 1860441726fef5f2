"""What was observed of each request of a stretch: when, how long, with what outcome; knows no wire."""

from __future__ import annotations

import time
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from tidemill.errors import TidemillError

__all__ = ["Recorder", "Samples"]

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Samples:
    """Requests that ended in a stretch, by process.

    Attributes:
        ends: When each was answered, in seconds of the machine's own clock.
        latencies: From when it was to be sent until then, in seconds.
        codes: The outcome of each, an index into `outcomes`.
        lags: How late each was sent for want of time on this side, in seconds; NaN if it waited for a connection.
        outcomes: "ok" and the codes of errors.
        texts: The first text of each kind of error.
        seconds: Length of the stretch.
        cpu_seconds: CPU time that each process of the load took for it.
    """

    ends: Floats
    latencies: Floats
    codes: npt.NDArray[np.int16]
    lags: Floats
    outcomes: tuple[str, ...]
    texts: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0
    cpu_seconds: tuple[float, ...] = ()

    @property
    def right(self) -> npt.NDArray[np.bool_]:
        """Which requests were answered."""
        return np.equal(self.codes, 0)

    @property
    def errors(self) -> dict[str, int]:
        """How many requests failed, by code."""
        counts = np.bincount(self.codes, minlength=len(self.outcomes))
        return {code: int(count) for code, count in zip(self.outcomes, counts, strict=True) if code != "ok" and count}

    @classmethod
    def joined(cls, parts: Sequence[Samples], *, apart: bool) -> Samples:
        """Several as one: those of processes side by side, or (`apart`) of stretches one after the other."""
        outcomes = tuple(dict.fromkeys(("ok", *(code for part in parts for code in part.outcomes))))
        codes = [np.array([outcomes.index(code) for code in part.outcomes], np.int16)[part.codes] for part in parts]
        return cls(
            ends=np.concatenate([part.ends for part in parts]),
            latencies=np.concatenate([part.latencies for part in parts]),
            codes=np.concatenate(codes),
            lags=np.concatenate([part.lags for part in parts]),
            outcomes=outcomes,
            texts={code: text for part in reversed(parts) for code, text in part.texts.items()},
            seconds=sum(part.seconds for part in parts) if apart else max(part.seconds for part in parts),
            cpu_seconds=_added([part.cpu_seconds for part in parts])
            if apart
            else tuple(seconds for part in parts for seconds in part.cpu_seconds),
        )


def _added(columns: Sequence[tuple[float, ...]]) -> tuple[float, ...]:
    return tuple(sum(column) for column in zip(*columns, strict=True))


class Recorder:
    """Gathers samples in one process; adding one costs about a microsecond."""

    def __init__(self) -> None:
        self._outcomes = {"ok": 0}
        self._texts: dict[str, str] = {}
        self._begin()

    def add(self, intended: float, sent: float, error: Exception | None, *, waited: bool = False) -> None:
        """Count a request that has just ended.

        Args:
            intended: When it was to be sent.
            sent: When it was.
            error: What went wrong, if anything.
            waited: Whether it waited for a connection rather than for this process.
        """
        now = time.perf_counter()
        self._ends.append(now)
        self._latencies.append(now - intended)
        self._codes.append(0 if error is None else self._code(error))
        self._lags.append(float("nan") if waited else sent - intended)

    def take(self) -> Samples:
        """What came since the last time."""
        samples = Samples(
            np.array(self._ends, np.float64),
            np.array(self._latencies, np.float64),
            np.array(self._codes, np.int16),
            np.array(self._lags, np.float64),
            tuple(self._outcomes),
            dict(self._texts),
            time.perf_counter() - self._begun,
            (time.process_time() - self._cpu,),
        )
        self._begin()
        return samples

    def _begin(self) -> None:
        self._ends, self._latencies, self._lags = array("d"), array("d"), array("d")
        self._codes: array[Any] = array("h")
        self._begun, self._cpu = time.perf_counter(), time.process_time()

    def _code(self, error: Exception) -> int:
        name = error.code if isinstance(error, TidemillError) else "connection"
        self._texts.setdefault(name, str(error)[:300])
        return self._outcomes.setdefault(name, len(self._outcomes))
