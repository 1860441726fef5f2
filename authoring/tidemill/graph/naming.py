"""What the values of a trace are called: full names from the module tree, unique names in an ONNX graph."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidemill.graph.weight import Weight

__all__ = ["Namer", "Naming"]


@dataclass(frozen=True)
class Naming:
    """The names that a module tree gives to its weights and modules.

    Attributes:
        weights: Every weight of the tree by its full name.
        modules: The path of every module by its identity.
    """

    weights: Mapping[str, Weight] = field(default_factory=dict)
    modules: Mapping[int, str] = field(default_factory=dict)

    @cached_property
    def _names(self) -> dict[int, str]:
        return {id(weight): name for name, weight in self.weights.items()}

    def weight_name(self, weight: Weight) -> str:
        """The full name of a weight, or its own name if the tree does not hold it."""
        return self._names.get(id(weight), weight.name)

    def module_path(self, module: Any) -> str:
        """The path of a module without the last dot; "" for the root and for strangers."""
        return self.modules.get(id(module), "")


class Namer:
    """Hands out names that are unique within one scope.

    Args:
        taken: Names that are given already.
    """

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._taken = set(taken)
        self._next: dict[str, int] = {}

    def name(self, hint: str) -> str:
        """`hint` if it is free, else `hint_1`, `hint_2`, ..."""
        candidate = hint
        while candidate in self._taken:
            self._next[hint] = self._next.get(hint, 0) + 1
            candidate = f"{hint}_{self._next[hint]}"
        self._taken.add(candidate)
        return candidate
