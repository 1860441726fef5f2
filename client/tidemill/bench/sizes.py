"""Sizes that vary from request to request: read from text, drawn with a seed; knows no tensors."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from tidemill.errors import ConfigError

__all__ = ["Sizes"]

_Draw: TypeAlias = Callable[[np.random.Generator, list[float]], float]
_NUMBER = re.compile(r"\d+(\.\d+)?")

_NAMED: dict[str, tuple[int, _Draw]] = {
    "normal": (2, lambda rng, given: rng.normal(given[0], given[1])),
    "lognormal": (2, lambda rng, given: given[0] * rng.lognormal(0.0, given[1])),
    "exponential": (1, lambda rng, given: rng.exponential(given[0])),
}
_FORMS = "64, 8:64 (evenly between), 8/64/256 (one of), normal:MEAN:DEVIATION, lognormal:MEDIAN:SIGMA, exponential:MEAN"


@dataclass(frozen=True, slots=True)
class Sizes:
    """A size, or how it is spread.

    Attributes:
        text: As it was written.
    """

    text: str
    _draw: Callable[[np.random.Generator], float]

    @classmethod
    def parse(cls, text: str) -> Sizes:
        """Read a size: `64`, `8:64`, `8/64/256`, `normal:64:16`, `lognormal:64:0.5` or `exponential:64`.

        Raises:
            ConfigError: The text has none of these forms.
        """
        name, *rest = text.split(":")
        if name in _NAMED:
            return cls(text, _named(name, _numbers(rest, text), text))
        if "/" in text:
            choices = _numbers(text.split("/"), text)
            return cls(text, lambda rng: float(rng.choice(choices)))
        given = _numbers(text.split(":"), text)
        if len(given) > 2 or given[-1] < given[0] or any(number % 1 for number in given):
            raise ConfigError(f"{text!r} is no size; known forms are {_FORMS}")
        return cls(text, lambda rng: float(rng.integers(int(given[0]), int(given[-1]) + 1)))

    def draw(self, rng: np.random.Generator) -> int:
        """One size, never below 1."""
        return max(1, round(self._draw(rng)))


def _named(name: str, given: list[float], text: str) -> Callable[[np.random.Generator], float]:
    count, draw = _NAMED[name]
    if len(given) != count:
        raise ConfigError(f"{text!r} gives {len(given)} numbers, {name} takes {count}; known forms are {_FORMS}")
    return lambda rng: draw(rng, given)


def _numbers(texts: list[str], whole: str) -> list[float]:
    if not texts or not all(_NUMBER.fullmatch(text) for text in texts):
        raise ConfigError(f"{whole!r} is no size; known forms are {_FORMS}")
    return [float(text) for text in texts]


def parse_assignments(texts: list[str], what: str) -> Mapping[str, str]:
    """Split NAME=VALUE; ConfigError names what is wrong."""
    pairs = [text.partition("=") for text in texts]
    for name, sign, value in pairs:
        if not (name and sign and value):
            raise ConfigError(f"{what} is {name + sign + value!r}, expected NAME=VALUE")
    return {name: value for name, _, value in pairs}
