"""Axes whose size only the run shows: their dim becomes known, or is held against what it is known to be."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidemill.graph.context import current, emit
from tidemill.graph.dim import SymbolicDim

if TYPE_CHECKING:
    from tidemill.graph.value import TensorValue

__all__ = ["sized"]


def sized(value: TensorValue, axis: int) -> TensorValue:
    """`value`, in which the run decides the size of `axis`.

    A new symbol stands for that size from here on. A dim that is known already is a claim: the run fails unless the
    size turns out to be it, because equal names are equal sizes.
    """
    dim = value.shape[axis]
    if isinstance(dim, SymbolicDim) and not current().knows(dim):
        current().define(dim, value, axis)
        return value
    return emit("Reshape", [value, current().extents(value.shape)], value.type, allowzero=1)
