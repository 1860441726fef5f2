"""The diagonal band of matrices."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidemill.dtype import DType
from tidemill.graph.context import as_tensor
from tidemill.graph.dim import Dim, StaticDim
from tidemill.graph.fault import op_fault
from tidemill.graph.ops.arange import positions
from tidemill.graph.ops.elementwise import greater_equal, logical_and, logical_not, sub, where
from tidemill.graph.ops.promote import TensorLike
from tidemill.graph.ops.shaping import unsqueeze

if TYPE_CHECKING:
    from tidemill.graph.value import TensorValue

__all__ = ["band_part"]


def band_part(
    x: TensorLike, num_lower: int | None = None, num_upper: int | None = None, exclude: bool = False
) -> TensorValue:
    """The last two axes as matrices of which only a band around the diagonal is kept; zero elsewhere.

    Args:
        x: Numbers or bools [..., rows, columns].
        num_lower: How many diagonals below the main one to keep; None for all.
        num_upper: How many diagonals above the main one to keep; None for all.
        exclude: Whether to keep what lies outside of the band instead.
    """
    value = as_tensor(x)
    if value.rank < 2:
        raise op_fault("band_part", {"x": value}, "takes matrices: at least 2 axes")
    _check_width(value, "num_lower", num_lower, value.shape[-2])
    _check_width(value, "num_upper", num_upper, value.shape[-1])
    below = sub(unsqueeze(positions(value.shape[-2]), 1), unsqueeze(positions(value.shape[-1]), 0))
    bounds = [greater_equal(num_lower, below)] if num_lower is not None else []
    bounds += [greater_equal(below, -num_upper)] if num_upper is not None else []
    if not bounds and not exclude:
        return value
    band = logical_and(bounds[0], bounds[1]) if len(bounds) == 2 else (bounds or [greater_equal(below, below)])[0]
    zero = False if value.dtype is DType.bool else 0
    return where(logical_not(band) if exclude else band, value, zero)


def _check_width(value: TensorValue, name: str, width: int | None, dim: Dim) -> None:
    if width is None:
        return
    if width < 0 or (isinstance(dim, StaticDim) and width >= dim.dim):
        raise op_fault("band_part", {"x": value}, f"{name} is {width}, expected None or a number in [0, {dim})")
