"""What the zoo keeps of a model beside its code."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from numpy.typing import NDArray

__all__ = ["Build", "Inputs", "ZooModel"]

Inputs: TypeAlias = dict[str, NDArray[Any]]
"""Arrays by the name of the input."""


class Build(Protocol):
    """Writes a model's bundle, and what belongs to it, into a model repository."""

    def __call__(self, repository: Path, weights: str | PathLike[str] | None = None) -> None:
        """Take the weights from a checkpoint, a path or URL, or from where they come from by default."""


@dataclass(frozen=True, slots=True)
class ZooModel:
    """A ready model.

    Attributes:
        summary: What it does, in one line.
        build: Writes it into a model repository.
        example_inputs: Inputs that it takes; the first of `served`, if there are several.
        package: The distribution that carries the weights; empty if tidemill itself does.
        licence: That of the weights.
        served: The names of the models that it becomes, where that is not its own.
    """

    summary: str
    build: Build
    example_inputs: Callable[[], Inputs]
    package: str = ""
    licence: str = "Apache-2.0"
    served: tuple[str, ...] = ()
