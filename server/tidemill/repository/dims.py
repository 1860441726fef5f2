"""Which dims of several models are the same size, found where a tensor goes from one to another; knows no tensors."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

__all__ = ["Dims"]


class Dims:
    """Symbols that were found equal, and the sizes that some of them turned out to have."""

    def __init__(self) -> None:
        self._parents: dict[Hashable, Hashable] = {}
        self._sizes: dict[Hashable, int] = {}
        self._names: dict[Hashable, str] = {}

    def declare(self, scope: Hashable, place: Hashable, shape: Sequence[int | str]) -> list[Hashable]:
        """The dims of one tensor of one model.

        Args:
            scope: Where a symbol means the same: the model.
            place: The tensor, which a size without a name is free in.
            shape: Sizes and symbols.
        """
        return [self._declare(scope, (place, axis), dim) for axis, dim in enumerate(shape)]

    def join(self, one: Hashable, other: Hashable) -> bool:
        """Note that two dims are of one size; False if they cannot be."""
        first, second = self._root(one), self._root(other)
        if first == second:
            return True
        sizes = {self._sizes[root] for root in (first, second) if root in self._sizes}
        if len(sizes) > 1:
            return False
        self._parents[second] = first
        self._sizes.update(dict.fromkeys([first], sizes.pop()) if sizes else {})
        self._names.setdefault(first, self._names.get(second, ""))
        return True

    def dim(self, one: Hashable) -> int | str:
        """The size of a dim, or a symbol that stands for it and for no other."""
        root = self._root(one)
        if root in self._sizes:
            return self._sizes[root]
        name = self._names.get(root, "")
        alike = [known for known, given in self._names.items() if given == name and self._root(known) == known]
        return name if len(alike) < 2 or not name else f"{name}_{alike.index(root)}"

    def _declare(self, scope: Hashable, place: Hashable, dim: int | str) -> Hashable:
        key = (scope, dim) if isinstance(dim, str) and dim else (scope, place)
        self._parents.setdefault(key, key)
        if isinstance(dim, int):
            self._sizes[key] = dim
        elif dim:
            self._names.setdefault(key, dim)
        return key

    def _root(self, key: Hashable) -> Hashable:
        while self._parents[key] != key:
            key = self._parents[key]
        return key
