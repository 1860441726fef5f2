"""Running sums and products along an axis."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tidemill.graph.context import as_tensor, current
from tidemill.graph.ops.arange import positions
from tidemill.graph.ops.axes import resolve_axis
from tidemill.graph.ops.elementwise import greater, greater_equal, where
from tidemill.graph.ops.kernels import compute
from tidemill.graph.ops.promote import TensorLike, check_numbers
from tidemill.graph.ops.reduction import prod
from tidemill.graph.ops.shaping import squeeze, transpose, unsqueeze

if TYPE_CHECKING:
    from tidemill.graph.value import TensorValue

__all__ = ["cumprod", "cumsum"]


def cumsum(x: TensorLike, axis: int = -1, exclusive: bool = False, reverse: bool = False) -> TensorValue:
    """The sum of everything up to each element along `axis`, in the dtype of `x`. Integers wrap around.

    Args:
        x: Numbers.
        axis: The axis to run along.
        exclusive: Whether the element itself is left out; the first sum is then 0.
        reverse: Whether to run from the end.
    """
    value = as_tensor(x)
    check_numbers("cumsum", value)
    along = current().constant(np.array(resolve_axis("cumsum", value, axis), np.int64))
    flags = {"exclusive": int(exclusive), "reverse": int(reverse)}
    return compute("CumSum", [value, along], value.type, of=value, **flags)


def cumprod(x: TensorLike, axis: int = -1, exclusive: bool = False, reverse: bool = False) -> TensorValue:
    """The product of everything up to each element along `axis`; as `cumsum` otherwise.

    ONNX has no such operator, so the products are formed side by side: memory and time grow with the square of the
    axis.
    """
    value = as_tensor(x)
    check_numbers("cumprod", value)
    index = resolve_axis("cumprod", value, axis)
    last = transpose(value, index, -1)
    place = positions(last.shape[-1])
    later, earlier = unsqueeze(place, 1), unsqueeze(place, 0)
    if reverse:
        later, earlier = earlier, later
    taken = greater(later, earlier) if exclusive else greater_equal(later, earlier)
    factors = where(taken, unsqueeze(last, -2), 1)
    return transpose(squeeze(prod(factors), -1), index, -1)
