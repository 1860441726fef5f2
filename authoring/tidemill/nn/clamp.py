"""clamp: values kept within bounds."""

from __future__ import annotations

from tidemill.graph import ops
from tidemill.graph.ops.promote import TensorLike
from tidemill.graph.value import TensorValue

__all__ = ["clamp"]


def clamp(x: TensorLike, min: float | None = None, max: float | None = None) -> TensorValue:
    """`x` with everything below `min` raised to it and everything above `max` lowered to it.

    Args:
        x: A TensorValue or Weight of numbers.
        min: The lower bound, None for none; it must fit the dtype of `x`.
        max: The upper bound, None for none.

    Raises:
        ValueError: Neither bound is given, or `min` is above `max`.
    """
    if min is None and max is None:
        raise ValueError("clamp: give min, max or both")
    if min is not None and max is not None and min > max:
        raise ValueError(f"clamp: min {min} is above max {max}")
    raised = x if min is None else ops.maximum(x, min)
    return ops.minimum(raised, max) if max is not None else raised
