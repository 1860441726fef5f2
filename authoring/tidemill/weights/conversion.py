"""Weights converted to another element type because somebody asked for it, and never otherwise."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

from tidemill.dtype import DType
from tidemill.weights.check import WeightKeys, WeightSpec
from tidemill.weights.safetensors import Array

__all__ = ["Conversion", "Converted", "find_conversions", "require_convertible"]

_FLOATS = (DType.float64, DType.float32, DType.float16, DType.bfloat16)


class Conversion(NamedTuple):
    """The element type that a weight has, and the one that it is to have."""

    given: DType
    wanted: DType


def require_convertible(dtype: DType | str) -> DType:
    """The element type of a name; ValueError if weights are not converted to it."""
    wanted = next((known for known in _FLOATS if dtype in (known, known.name)), None)
    if wanted is None:
        known_names = ", ".join(known.name for known in _FLOATS)
        raise ValueError(f"weights cannot be converted to {dtype!r}; known are {known_names}")
    return wanted


def find_conversions(
    specs: Mapping[str, WeightSpec], arrays: Mapping[str, Array], keys: WeightKeys, wanted: DType
) -> dict[str, Conversion]:
    """Which keys change: floats of another type, where the model declares the one that is asked for.

    Args:
        specs: What the model declares, by name.
        arrays: The checkpoint's arrays by key.
        keys: How names lead to keys.
        wanted: The element type that was asked for.
    """
    found: dict[str, Conversion] = {}
    for name, spec in specs.items():
        present = [key for key in keys.candidates(name) if key in arrays] if spec.dtype is wanted else []
        for key in present:
            given = DType.from_numpy(arrays[key].dtype)
            if given is not wanted and given in _FLOATS:
                found[key] = Conversion(given, wanted)
    return found


class Converted(Mapping[str, Array]):
    """A mapping in which some arrays have another element type, computed when asked for.

    Args:
        arrays: The arrays by key.
        conversions: The keys that change; the others stay as they are.
    """

    def __init__(self, arrays: Mapping[str, Array], conversions: Mapping[str, Conversion]) -> None:
        self._arrays = arrays
        self._conversions = conversions

    def __getitem__(self, key: str) -> Array:
        """The array; ValueError if the type asked for cannot hold its values."""
        array = self._arrays[key]
        return _convert(key, array, self._conversions[key].wanted) if key in self._conversions else array

    def __contains__(self, key: object) -> bool:
        return key in self._arrays

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)


def _convert(key: str, array: Array, dtype: DType) -> Array:
    with np.errstate(over="ignore"):
        converted: Array = array.astype(dtype.to_numpy())
    lost = np.isfinite(array) & ~np.isfinite(converted)
    if lost.any():
        worst = np.abs(array[lost].astype(np.float64)).max()
        raise ValueError(f"weight {key!r} holds {worst:g}, which {dtype.name} cannot; leave it as it is")
    return converted
