"""The flight recorder: what the last requests looked like and where their time went; keeps no values and no wire."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from tidemill.dtype import DType
from tidemill.serving.seen import RequestSeen, Shape

__all__ = ["Recorder"]


class _Entry(NamedTuple):
    """One request, or several that were answered together."""

    seen: RequestSeen
    queue: float
    run: float
    rows: int
    requests: int = 1


class Recorder:
    """Keeps the last requests of one server."""

    def __init__(self, size: int, clock: Callable[[], float] = time.monotonic) -> None:
        """Begin empty.

        Args:
            size: How many requests are kept.
            clock: The server's, in seconds.
        """
        self._size = size
        self._entries: deque[_Entry] = deque(maxlen=size)
        self._offset = time.time() - clock()

    def on_request(self, seen: RequestSeen) -> None:
        """Keep one request."""
        timing = seen.timing
        spent = (timing.queue_seconds, timing.run_seconds, timing.batch_rows) if timing else (0.0, 0.0, 0)
        # Headers and texts may hold what is nobody's business.
        self._entries.append(_Entry(seen._replace(carrier={}, reason="", timing=None, request_id=""), *spent))

    def on_burst(self, seen: RequestSeen, ran: float, rows: int, count: int) -> None:
        """Keep requests that were answered together.

        Args:
            seen: One of them.
            ran: Seconds of their run.
            rows: The rows of all of them.
            count: How many there are.
        """
        self._entries.append(_Entry(seen, max(0.0, seen.seconds - ran), ran, rows, count))

    def document(self) -> list[dict[str, Any]]:
        """The last requests, those first that ended first."""
        kept = [entry for entry in self._entries for _ in range(entry.requests)]
        return [self._told(entry) for entry in kept[-self._size :]]

    def _told(self, entry: _Entry) -> dict[str, Any]:
        seen = entry.seen
        return {
            "time": round(self._offset + seen.started, 6),
            "model": seen.model,
            "version": seen.version,
            "protocol": seen.protocol,
            "code": seen.code,
            "inputs": [_input(shape) for shape in seen.shapes],
            "total_us": round(seen.seconds * 1e6),
            "queue_us": round(entry.queue * 1e6),
            "infer_us": round(entry.run * 1e6),
            "batch_size": entry.rows,
        }


def _input(shape: Shape) -> dict[str, Any]:
    return {"name": shape.name, "datatype": DType.from_numpy(shape.dtype).wire, "shape": list(shape.sizes)}
