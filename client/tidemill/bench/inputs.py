"""Inputs made from a model's signature: legal sizes, legal values, the same for the same seed; knows no wire."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tidemill.bench.sizes import Sizes
from tidemill.dtype import DType
from tidemill.errors import ConfigError
from tidemill.protocol.types import Array, TensorSpec

__all__ = ["Generator", "Range"]

_WORDS = [
    "water",
    "gathers",
    "behind",
    "the",
    "gate",
    "until",
    "the",
    "tide",
    "turns",
    "and",
    "then",
    "it",
    "runs",
    "over",
    "the",
    "wheel",
    "at",
    "once",
]
_MASK = "mask"
_ONE, _SOME, _FEW_WORDS = Sizes.parse("1"), Sizes.parse("16"), Sizes.parse("8:24")


@dataclass(frozen=True, slots=True)
class Range:
    """The least and the greatest value of an input, both possible."""

    low: float
    high: float

    @classmethod
    def parse(cls, text: str) -> Range:
        """Read LOW:HIGH.

        Raises:
            ConfigError: It is not two numbers in order.
        """
        low, sign, high = text.partition(":")
        try:
            found = cls(float(low), float(high if sign else low))
        except ValueError:
            raise ConfigError(f"range {text!r} is not LOW:HIGH, such as 0:30521") from None
        if not found.low <= found.high < float("inf"):
            raise ConfigError(f"range {text!r} ends below its start")
        return found


class Generator:
    """Draws requests for a signature.

    Args:
        specs: The model's inputs.
        shapes: Sizes of free dims, by symbol ("seq"), by input and axis ("input_ids.1"), or "batch" for all axes 0.
            The wire does not tell symbols, so one name that nobody knows means all dims that are free beside the batch.
        ranges: Values by input. Without one floats are noise, whole numbers are 0 or 1 and masks are ones: legal for
            any table of two rows or more.
        words: Words of a text.

    Raises:
        ConfigError: A name is not one of the model's.
    """

    def __init__(
        self,
        specs: Sequence[TensorSpec],
        shapes: Mapping[str, Sizes] | None = None,
        ranges: Mapping[str, Range] | None = None,
        words: Sizes = _FEW_WORDS,
    ) -> None:
        self._specs, self._ranges, self._words = specs, ranges or {}, words
        self._dims = _resolve(specs, shapes or {})
        names = [spec.name for spec in specs]
        for name in self._ranges:
            if name not in names:
                raise ConfigError(f"a range is given for input {name!r}; the model has {', '.join(names)}")

    def draw(self, rng: np.random.Generator) -> dict[str, Array]:
        """Arrays by input name; dims of one name have one size."""
        sizes = {name: one.draw(rng) for name, one in self._dims.values()}
        return {spec.name: self._array(spec, self._shape(spec, sizes), rng) for spec in self._specs}

    def of_shapes(self, shapes: Mapping[str, Sequence[int]], rng: np.random.Generator) -> dict[str, Array]:
        """Arrays of given shapes by input name; inputs that are not named are left out.

        Raises:
            ConfigError: The model has no input of a name.
        """
        known = {spec.name: spec for spec in self._specs}
        for name in shapes:
            if name not in known:
                raise ConfigError(f"the recording has an input {name!r}; the model takes {', '.join(known)}")
        return {name: self._array(known[name], list(shape), rng) for name, shape in shapes.items()}

    def requests(self, seed: int, count: int) -> list[dict[str, Array]]:
        """So many requests of a seed."""
        rng = np.random.default_rng(seed)
        return [self.draw(rng) for _ in range(count)]

    def _shape(self, spec: TensorSpec, sizes: Mapping[str, int]) -> list[int]:
        dims = enumerate(spec.shape)
        return [dim if isinstance(dim, int) else sizes[self._dims[spec.name, axis][0]] for axis, dim in dims]

    def _array(self, spec: TensorSpec, shape: list[int], rng: np.random.Generator) -> Array:
        if spec.dtype is DType.string:
            return _texts(shape, self._words, rng)
        given = self._ranges.get(spec.name)
        if given is None and _MASK in spec.name.lower():
            return np.ones(shape, spec.dtype.to_numpy())
        if spec.dtype.is_float():
            numbers = rng.uniform(given.low, given.high, shape) if given else rng.standard_normal(shape)
            return numbers.astype(spec.dtype.to_numpy())
        low, high = (int(given.low), int(given.high)) if given else (0, 1)
        return rng.integers(low, high + 1, shape, dtype=np.int64).astype(spec.dtype.to_numpy())


def _resolve(specs: Sequence[TensorSpec], shapes: Mapping[str, Sizes]) -> dict[tuple[str, int], tuple[str, Sizes]]:
    """The name and the sizes of each free dim, by input and axis."""
    free = [(spec, axis) for spec in specs for axis, dim in enumerate(spec.shape) if not isinstance(dim, int)]
    known = {key for spec, axis in free for key in _keys(spec, axis)}
    unknown = [name for name in shapes if name not in known]
    anonymous = [f"{spec.name}.{axis}" for spec, axis in free if axis and not spec.shape[axis]]
    if len(unknown) > 1 or (unknown and not (anonymous and unknown[0].isidentifier())):
        raise ConfigError(
            f"sizes are given for {', '.join(map(repr, unknown))}; free dims are {', '.join(sorted(known)) or 'none'}"
        )
    others = (unknown[0], shapes[unknown[0]]) if unknown else ("", _SOME)

    def of(spec: TensorSpec, axis: int) -> tuple[str, Sizes]:
        named = [(key, shapes[key]) for key in _keys(spec, axis) if key in shapes]
        return next(iter(named), ("batch", _ONE) if axis == 0 else others)

    return {(spec.name, axis): of(spec, axis) for spec, axis in free}


def _keys(spec: TensorSpec, axis: int) -> list[str]:
    symbol = str(spec.shape[axis])
    return [f"{spec.name}.{axis}", *([symbol] if symbol else []), *(["batch"] if axis == 0 else [])]


def _texts(shape: list[int], words: Sizes, rng: np.random.Generator) -> Array:
    texts = np.empty(int(np.prod(shape)), dtype=np.object_)
    texts[:] = [" ".join(rng.choice(_WORDS, words.draw(rng))).encode() for _ in texts]
    return texts.reshape(shape)
