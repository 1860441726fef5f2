"""The dims of a tensor, in order; knows nothing of dtypes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

from tidemill.graph.dim import Dim, DimLike, StaticDim

__all__ = ["Shape", "ShapeLike"]

ShapeLike: TypeAlias = Iterable[DimLike]


class Shape(list[Dim]):
    """A list of dims, made from numbers, names and dims: `Shape([2, "a"])`."""

    def __init__(self, dims: ShapeLike = ()) -> None:
        super().__init__(Dim(dim) for dim in dims)

    @property
    def rank(self) -> int:
        """The number of axes."""
        return len(self)

    @property
    def static_dims(self) -> list[int]:
        """The sizes of the static dims, the others left out."""
        return [int(dim) for dim in self if isinstance(dim, StaticDim)]

    @property
    def is_static(self) -> bool:
        """Whether every dim is a known size."""
        return len(self.static_dims) == len(self)

    @property
    def num_elements(self) -> Dim:
        """The product of all dims; 1 for rank 0."""
        total: Dim = StaticDim(1)
        for dim in self:
            total = total * dim
        return total

    def substitute(self, sizes: Mapping[str, Dim]) -> Shape:
        """This shape with symbols replaced by the dims of `sizes`."""
        return Shape(dim.substitute(sizes) for dim in self)

    def __str__(self) -> str:
        return "[" + ", ".join(str(dim) for dim in self) + "]"
