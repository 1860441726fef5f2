"""Run times that were measured at an earlier start, beside the optimised graphs; knows no model."""

from __future__ import annotations

import hashlib
import json
import logging
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

__all__ = ["KeptCosts", "Measured"]

_LOG = logging.getLogger("tidemill.repository")

Measured: TypeAlias = dict[tuple[int, int], float]
"""Seconds by (rows, length)."""

_MOST_FILES = 256
"""Of so many models, threads and settings run times are kept; of more, the latest."""
_MOST_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class KeptCosts:
    """A folder of run times, one file for all that they follow from.

    Attributes:
        directory: The folder; made when needed.
        strict: Whether it is only read.
    """

    directory: Path
    strict: bool = False

    def recall(self, facts: Mapping[str, Any], measure: Callable[[], Measured]) -> Measured:
        """What was measured under the same facts, else what is measured now.

        Args:
            facts: What run times follow from: model, threads, kind of inputs.
            measure: Measures.
        """
        text = json.dumps(facts, sort_keys=True)
        path = self.directory / f"{hashlib.sha256(text.encode()).hexdigest()}.costs.json"
        if measured := _read(path):
            return measured
        measured = measure()
        if measured and not self.strict:
            self._keep(path, measured)
        return measured

    def _keep(self, path: Path, measured: Measured) -> None:
        points = [[rows, length, seconds] for (rows, length), seconds in measured.items()]
        draft = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            draft.write_text(json.dumps(points))
            draft.replace(path)
            for old in sorted(self.directory.glob("*.costs.json"), key=_age)[_MOST_FILES:]:
                old.unlink(missing_ok=True)
        except OSError as error:
            _LOG.warning("run times are measured again at the next start, they cannot be kept: %s", error)


def _age(path: Path) -> float:
    try:
        return -path.stat().st_mtime
    except FileNotFoundError:  # another process was quicker
        return math.inf


def _read(path: Path) -> Measured:
    """Nothing if there is no such file, or if it is not what was written."""
    try:
        with path.open("rb") as file:
            points = json.loads(file.read(_MOST_BYTES))
        measured = {(int(rows), int(length)): float(seconds) for rows, length, seconds in points}
    except (OSError, ValueError, TypeError):
        return {}
    sound = all(rows > 0 and length >= 0 and 0 < seconds < math.inf for (rows, length), seconds in measured.items())
    return measured if sound else {}
