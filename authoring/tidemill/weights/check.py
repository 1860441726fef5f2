"""Whether a checkpoint has the weights that a model declares; finds all faults at once and changes nothing."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches

import numpy as np

from tidemill.dtype import DType
from tidemill.weights.header import TensorEntry
from tidemill.weights.rename import common_prefix, key_of
from tidemill.weights.safetensors import Array

__all__ = ["WeightKeys", "WeightSpec", "find_faults"]

_HINTS = 8


@dataclass(frozen=True, slots=True)
class WeightSpec:
    """What a model declares of a weight."""

    dtype: DType
    shape: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.dtype.name}{list(self.shape)}"


@dataclass(frozen=True, slots=True)
class WeightKeys:
    """How a model's weight names lead to keys of a checkpoint.

    Attributes:
        rename: Weight name to key, where the two differ, with patterns as in `tidemill.weights.rename`.
        tied: Other names of a weight, each with the name under which the model has it. A checkpoint may hold any.
    """

    rename: Mapping[str, str] = field(default_factory=dict)
    tied: Mapping[str, str] = field(default_factory=dict)

    def candidates(self, name: str) -> list[str]:
        """The keys under which the weight may stand, the best first."""
        names = [name, *(alias for alias, owner in self.tied.items() if owner == name)]
        return [key_of(self.rename, candidate) for candidate in names]

    def find(self, name: str, keys: Container[str]) -> str | None:
        """The key of the weight among `keys`; None if it is not there."""
        return next((key for key in self.candidates(name) if key in keys), None)


def find_faults(
    specs: Mapping[str, WeightSpec],
    entries: Mapping[str, TensorEntry],
    keys: WeightKeys,
    values: Mapping[str, Array],
) -> list[str]:
    """Compare what a model declares with what a checkpoint holds.

    Args:
        specs: The declared weights by name.
        entries: The checkpoint's tensors by key.
        keys: How names lead to keys.
        values: The checkpoint's arrays by key; read only where a tied weight stands under several keys.

    Returns:
        One sentence a fault: missing weights with suggestions, wrong shapes and dtypes, tied weights that differ.
    """
    faults: list[str] = []
    hints = _HINTS
    for name, spec in specs.items():
        key = keys.find(name, entries)
        if key is None:
            # Looking for something alike takes all keys each time; a few hints show what is wrong.
            faults.append(_missing(name, spec, keys.candidates(name), entries if hints > 0 else {}))
            hints -= 1
        else:
            faults += _mismatches(name, spec, entries[key]) or _untied(name, keys, entries, values)
    return faults + _prefix_hint(specs, entries, keys)


def _prefix_hint(specs: Mapping[str, WeightSpec], entries: Mapping[str, TensorEntry], keys: WeightKeys) -> list[str]:
    missing = [name for name in specs if keys.find(name, entries) is None]
    prefix = common_prefix(missing, entries)
    return [f"all that is missing stands behind {prefix!r}, see rename={{'**': '{prefix}**'}}"] if prefix else []


def _missing(name: str, spec: WeightSpec, keys: list[str], entries: Mapping[str, TensorEntry]) -> str:
    asked = f" (as {', '.join(map(repr, keys))})" if keys != [name] else ""
    close = get_close_matches(keys[0], entries, n=1)
    hint = f", did you mean {close[0]!r}?" if close else ""
    return f"weight {name!r} {spec}{asked} is missing{hint}"


def _mismatches(name: str, spec: WeightSpec, entry: TensorEntry) -> list[str]:
    given = []
    if entry.shape != spec.shape:
        given.append(f"shape {list(entry.shape)}, expected {list(spec.shape)}")
    if entry.dtype is not spec.dtype:
        found = entry.type_name if entry.dtype is None else entry.dtype.name
        given.append(f"dtype {found}, expected {spec.dtype.name}")
    return [f"weight {name!r} has {' and '.join(given)}"] if given else []


def _untied(name: str, keys: WeightKeys, entries: Mapping[str, TensorEntry], values: Mapping[str, Array]) -> list[str]:
    first, *others = [key for key in keys.candidates(name) if key in entries]
    return [
        f"tied weight {name!r} stands under {first!r} and {other!r} with different values"
        for other in others
        if not _same_bytes(values[first], values[other])
    ]


def _same_bytes(left: Array, right: Array) -> bool:
    if (left.shape, left.dtype) != (right.shape, right.dtype):
        return False
    return bool(np.array_equal(left.reshape(-1).view(np.uint8), right.reshape(-1).view(np.uint8)))
