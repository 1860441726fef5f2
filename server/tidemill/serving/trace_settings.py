"""Which requests leave a trace: the settings of the trace extension, for all models or one; knows no wire."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from tidemill.errors import InvalidArgument, Unsupported
from tidemill.protocol.types import Timing

__all__ = ["TraceSettings"]

_LOG = logging.getLogger("tidemill.trace")
_DEFAULTS: dict[str, tuple[str, ...]] = {
    "trace_level": ("OFF",),
    "trace_rate": ("1000",),
    "trace_count": ("-1",),
    "log_frequency": ("0",),
    "trace_file": ("",),
    "trace_mode": ("triton",),
}
_LEVELS = ("OFF", "TIMESTAMPS")
_LOWEST = {"trace_rate": 1, "trace_count": -1, "log_frequency": 0}


class TraceSettings:
    """The settings of one server. A trace is one line in its log: the request's id and where its time went.

    A setting is a list of strings, as in gRPC; an empty one takes back what was set.
    """

    def __init__(self) -> None:
        self._everywhere: dict[str, tuple[str, ...]] = {}
        self._of_model: dict[str, dict[str, tuple[str, ...]]] = {}
        self._seen: dict[str, int] = {}
        self._active = False

    @property
    def active(self) -> bool:
        """Whether any request leaves a trace."""
        return self._active

    def get(self, model: str = "") -> dict[str, tuple[str, ...]]:
        """Every setting, as it holds for a model or for those that have none of their own."""
        return _DEFAULTS | self._everywhere | self._of_model.get(model, {})

    def update(self, changes: Mapping[str, Sequence[str]], model: str = "") -> None:
        """Change some settings, all or none.

        Raises:
            InvalidArgument: A setting is unknown or has an impossible value.
            Unsupported: `trace_file` is given, which callers must not choose.
        """
        for name, values in changes.items():
            _check(name, tuple(values))
        target = self._of_model.setdefault(model, {}) if model else self._everywhere
        for name, values in changes.items():
            if values:
                target[name] = tuple(values)
            else:
                target.pop(name, None)
        self._seen.pop(model, None)
        self._active = any("TIMESTAMPS" in self.get(known)["trace_level"] for known in ("", *self._of_model))

    def record(self, model: str, identifier: str, seconds: float, timing: Timing | None) -> None:
        """Note an answered request, and write it down if it is its turn."""
        settings = self.get(model)
        if "TIMESTAMPS" not in settings["trace_level"]:
            return
        # Models with settings of their own count for themselves, the others together.
        counted = model if model in self._of_model else ""
        seen = self._seen[counted] = self._seen.get(counted, 0) + 1
        rate, count = int(settings["trace_rate"][0]), int(settings["trace_count"][0])
        if seen % rate or -1 < count < seen // rate:
            return
        fields = {"model": model, "request_id": identifier, "request_seconds": round(seconds, 6)}
        if timing:
            fields |= {"queue_seconds": round(timing.queue_seconds, 6), "run_seconds": round(timing.run_seconds, 6)}
            fields |= {"batch_rows": timing.batch_rows}
        _LOG.info("trace %s", " ".join(f"{name}={value}" for name, value in fields.items()), extra=fields)


def _check(name: str, values: tuple[str, ...]) -> None:
    if name not in _DEFAULTS:
        raise InvalidArgument(f"unknown trace setting {name!r}; known are {', '.join(_DEFAULTS)}")
    if not values:
        return
    if name == "trace_file":
        raise Unsupported("trace_file cannot be set by callers; traces go to the server's log")
    if name == "trace_level":
        unknown = [value for value in values if value not in _LEVELS]
        if unknown:
            raise InvalidArgument(f"trace_level {unknown[0]!r} is unknown; known are {', '.join(_LEVELS)}")
    elif len(values) > 1:
        raise InvalidArgument(f"{name} takes one value, not {len(values)}")
    elif name == "trace_mode":
        if values != ("triton",):
            raise InvalidArgument(f"trace_mode {values[0]!r} is not offered; it is 'triton'")
    elif not _is_count(values[0], _LOWEST[name]):
        raise InvalidArgument(f"{name} is {values[0]!r}, expected a whole number from {_LOWEST[name]} on")


def _is_count(text: str, lowest: int) -> bool:
    digits = text.removeprefix("-")
    return digits.isascii() and digits.isdigit() and len(digits) < 19 and int(text) >= lowest
