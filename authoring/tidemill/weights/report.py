"""What became of a checkpoint's tensors when a model took its weights from it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tidemill.weights.check import WeightKeys, WeightSpec

__all__ = ["WeightReport", "report_weights"]

_SHOWN = 10


@dataclass(frozen=True, slots=True)
class WeightReport:
    """A model's weights against a checkpoint's keys.

    Attributes:
        used: Weight name to the key that it is read from.
        missing: Weights that the checkpoint lacks.
        unexpected: Keys that no weight is read from.
    """

    used: Mapping[str, str]
    missing: tuple[str, ...]
    unexpected: tuple[str, ...]

    def __str__(self) -> str:
        lines = [f"{len(self.used)} weights used"]
        for what, names in (("missing", self.missing), ("unexpected", self.unexpected)):
            if names:
                rest = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
                lines.append(f"{len(names)} {what}: {', '.join(names[:_SHOWN])}{rest}")
        return "; ".join(lines)


def report_weights(specs: Mapping[str, WeightSpec], keys: Iterable[str], names: WeightKeys) -> WeightReport:
    """Match a model's weights with a checkpoint's keys.

    Args:
        specs: What the model declares, by name.
        keys: The checkpoint's keys.
        names: How names lead to keys.
    """
    present = dict.fromkeys(keys)
    found = {name: names.find(name, present) for name in specs}
    used = {name: key for name, key in found.items() if key is not None}
    # A tied weight may stand under each of its names.
    taken = {key for name in used for key in names.candidates(name)}
    missing = tuple(name for name, key in found.items() if key is None)
    return WeightReport(used, missing, tuple(key for key in present if key not in taken))
