"""Where the channels are: ONNX wants them before the spatial axes, the seed's default is after them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tidemill.graph.dim import StaticDim
from tidemill.graph.fault import op_fault
from tidemill.graph.layout import ConvInputLayout, FilterLayout
from tidemill.graph.ops.shaping import permute

if TYPE_CHECKING:
    from tidemill.graph.value import TensorValue

__all__ = ["channels_first", "channels_restored", "filter_first", "kernel_sizes"]

_SPATIAL_FIRST = (FilterLayout.RSCF, FilterLayout.QRSCF)


def channels_first(value: TensorValue, layout: ConvInputLayout) -> TensorValue:
    """`value` as [batch, channels, ...]."""
    if layout is ConvInputLayout.NCHW:
        return value
    return permute(value, [0, value.rank - 1, *range(1, value.rank - 1)])


def channels_restored(value: TensorValue, layout: ConvInputLayout) -> TensorValue:
    """[batch, channels, ...] in the layout that the user works in."""
    if layout is ConvInputLayout.NCHW:
        return value
    return permute(value, [0, *range(2, value.rank), 1])


def filter_first(value: TensorValue, layout: FilterLayout) -> TensorValue:
    """A filter with the spatial axes last; the two channel axes come in the order F, C, or C, F for `CFRS`."""
    if layout not in _SPATIAL_FIRST:
        return value
    return permute(value, [value.rank - 1, value.rank - 2, *range(value.rank - 2)])


def kernel_sizes(op: str, filter: TensorValue, dims: Sequence[object]) -> tuple[int, ...]:
    """The sizes of a filter's spatial axes; ValueError if one is symbolic or zero."""
    sizes = tuple(dim.dim for dim in dims if isinstance(dim, StaticDim) and dim.dim > 0)
    if len(sizes) != len(dims):
        raise op_fault(op, {"filter": filter}, "the spatial dims of a filter must be static and not zero")
    return sizes
