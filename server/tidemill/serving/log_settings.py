"""What the log holds while the server runs: the settings of the logging extension; knows no wire."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TypeAlias

from tidemill.errors import InvalidArgument, Unsupported

__all__ = ["LogSettings", "LogValue"]

LogValue: TypeAlias = bool | int | str

_FORMATS = ("default", "ISO8601")
_SWITCHES = {"log_info": logging.INFO, "log_warning": logging.WARNING, "log_error": logging.ERROR}


class LogSettings:
    """The settings of one process's log; the first change puts a filter before its handlers."""

    def __init__(self, level: str = "info") -> None:
        """Begin as configured.

        Args:
            level: The least level that is logged: "debug", "info", "warning" or "error".
        """
        least = getattr(logging, level.upper())
        self._values: dict[str, LogValue] = {
            "log_file": "",
            **{name: least <= switched for name, switched in _SWITCHES.items()},
            "log_verbose_level": int(least <= logging.DEBUG),
            "log_format": "default",
        }

    def get(self) -> dict[str, LogValue]:
        """Every setting."""
        return dict(self._values)

    def update(self, changes: Mapping[str, object]) -> None:
        """Change some settings, all or none.

        Raises:
            InvalidArgument: A setting is unknown or of the wrong type.
            Unsupported: `log_file` is given, which callers must not choose.
        """
        checked = {name: self._checked(name, value) for name, value in changes.items()}
        self._values |= checked
        if checked:
            self._apply()

    def passes(self, record: logging.LogRecord) -> bool:
        """Whether a record is to be written."""
        if record.levelno < logging.INFO:
            return bool(self._values["log_verbose_level"])
        name = next(name for name, least in reversed(_SWITCHES.items()) if record.levelno >= least)
        return bool(self._values[name])

    def _checked(self, name: str, value: object) -> LogValue:
        if name not in self._values:
            raise InvalidArgument(f"unknown log setting {name!r}; known are {', '.join(self._values)}")
        expected = type(self._values[name])
        if type(value) is not expected:
            raise InvalidArgument(f"{name} is {value!r}, expected a value of type {expected.__name__}")
        if name == "log_file":
            raise Unsupported("log_file cannot be set by callers; the log goes to standard error")
        if name == "log_format" and value not in _FORMATS:
            raise InvalidArgument(f"log_format is {value!r}, expected one of {', '.join(_FORMATS)}")
        if isinstance(value, int) and value < 0:
            raise InvalidArgument(f"{name} is {value}, expected a whole number from 0 on")
        return value

    def _apply(self) -> None:
        verbose = bool(self._values["log_verbose_level"])
        logging.getLogger("tidemill").setLevel(logging.DEBUG if verbose else logging.INFO)
        for handler in logging.getLogger().handlers:
            if self.passes not in handler.filters:
                handler.addFilter(self.passes)
            if type(handler.formatter) is logging.Formatter:
                iso = self._values["log_format"] == "ISO8601"
                handler.formatter.datefmt = "%Y-%m-%dT%H:%M:%S%z" if iso else None
