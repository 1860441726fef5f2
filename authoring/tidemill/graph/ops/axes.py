"""Axes as users write them: negative ones count from the end."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidemill.graph.value import TensorValue

__all__ = ["check_axis", "resolve_axis"]


def resolve_axis(op: str, value: TensorValue, axis: int) -> int:
    """`axis` of `value` counted from the front; IndexError if it has no such axis."""
    return check_axis(op, axis, value.rank)


def check_axis(op: str, axis: int, rank: int) -> int:
    """`axis` counted from the front; IndexError unless it lies in [-rank, rank)."""
    if not -rank <= axis < rank:
        raise IndexError(f"{op}: Axis out of range (expected to be in range of [{-rank}, {rank - 1}], but got {axis})")
    return axis % rank if rank else axis
