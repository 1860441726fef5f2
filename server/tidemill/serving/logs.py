"""How the server writes its log: one line an event, as text or as JSON, to standard error."""

from __future__ import annotations

import json
import logging
import sys
import time
from typing import Any

from tidemill.serving.request_id import CURRENT

__all__ = ["configure_logs"]

_TEXT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_REQUEST = "request_id"
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "color_message", "taskName"}


class TextFormatter(logging.Formatter):
    """Writes a record as a line of text, with the id of the request that it is about."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 (the library's name)
        """The line before any traceback."""
        line, name = super().formatMessage(record), _request_of(record)
        return f"{line} [request {name}]" if name else line


class JsonFormatter(logging.Formatter):
    """Writes a record as one JSON object; what was passed as `extra` becomes keys of it."""

    def format(self, record: logging.LogRecord) -> str:
        """One line of JSON."""
        event: dict[str, Any] = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if name := _request_of(record):
            event[_REQUEST] = name
        event |= {key: value for key, value in vars(record).items() if key not in _STANDARD}
        if record.exc_info:
            event["exception"] = self.formatException(record.exc_info)
        return json.dumps(event, default=str, ensure_ascii=False)


def _request_of(record: logging.LogRecord) -> str:
    return str(getattr(record, _REQUEST, "")) or CURRENT.get()


def configure_logs(level: str, style: str) -> None:
    """Send the logs of tidemill and of the libraries under it to standard error.

    Args:
        level: The least level of tidemill's own records; the libraries' start at warning.
        style: "text" or "json".
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if style == "json" else TextFormatter(_TEXT))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("tidemill").setLevel(level.upper())
