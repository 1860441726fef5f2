"""A line in the log for every request, or for those that failed; knows no wire and nothing of what was asked."""

from __future__ import annotations

import logging
from typing import Any

from tidemill.serving.seen import RequestSeen

__all__ = ["RequestLog"]

_LOG = logging.getLogger("tidemill.requests")
_OK = "ok"
_TRACE = slice(3, 35)
"""Where a traceparent has the trace's id (W3C Trace Context, section 3.2)."""


class RequestLog:
    """Writes the lines; is a `Watcher`."""

    def __init__(self, *, failed_only: bool) -> None:
        self._failed_only = failed_only

    def __call__(self, seen: RequestSeen) -> None:
        """Write one."""
        if seen.code == _OK and self._failed_only:
            return
        milliseconds = seen.seconds * 1e3
        name = seen.model or "no model"
        _LOG.info("%s %s: %s in %.3f ms", seen.protocol, name, seen.code, milliseconds, extra=_fields(seen))


def _fields(seen: RequestSeen) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "model": seen.model,
        "version": seen.version,
        "protocol": seen.protocol,
        "code": seen.code,
        "total_ms": round(seen.seconds * 1e3, 3),
    }
    if seen.timing:
        fields["queue_ms"] = round(seen.timing.queue_seconds * 1e3, 3)
        fields["infer_ms"] = round(seen.timing.run_seconds * 1e3, 3)
        fields["batch_size"] = seen.timing.batch_rows
    if seen.reason:
        fields["reason"] = seen.reason
    if seen.request_id:
        fields["request_id"] = seen.request_id
    if trace := seen.carrier.get("traceparent", "")[_TRACE]:
        fields["trace_id"] = trace
    return fields
