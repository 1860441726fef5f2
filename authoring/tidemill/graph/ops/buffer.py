"""Buffers: inputs that a graph reads and writes in place; a write is seen by every later read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tidemill.graph.context import as_tensor, current, emit
from tidemill.graph.fault import op_fault
from tidemill.graph.ops.indexing import slice_tensor
from tidemill.graph.ops.promote import TensorLike, is_weak, weak_constant
from tidemill.graph.ops.shaping import broadcast_to, reshape
from tidemill.graph.shape import Shape

if TYPE_CHECKING:
    from tidemill.graph.buffer_value import BufferValue
    from tidemill.graph.value import TensorValue

__all__ = ["buffer_load", "buffer_store", "buffer_store_slice"]


def buffer_load(x: BufferValue) -> TensorValue:
    """What the buffer holds now; later writes do not change it."""
    return x.content


def buffer_store(destination: BufferValue, source: TensorLike) -> None:
    """Put `source`, of the buffer's dtype and shape, into the buffer."""
    held = destination.content
    value = weak_constant(source, held) if is_weak(source) else as_tensor(source)
    if value.rank < held.rank:
        value = broadcast_to(value, held.shape)
    if value.dtype is not held.dtype or value.shape != held.shape:
        raise op_fault("buffer_store", {"destination": destination, "source": value}, "dtype and shape must be equal")
    destination.replace(value)


def buffer_store_slice(destination: BufferValue, source: TensorLike, indices: Any) -> None:
    """Put `source` where `destination[indices]` lies; the buffer's shape must be static.

    Args:
        destination: The buffer.
        source: A tensor of the slice's shape.
        indices: Whole numbers, slices and `...`, as for `slice_tensor`.
    """
    held = destination.content
    if not held.shape.is_static:
        raise op_fault("buffer_store_slice", {"destination": destination}, "the buffer's shape must be static")
    part = slice_tensor(held, indices)
    value = weak_constant(source, held) if is_weak(source) else as_tensor(source)
    value = broadcast_to(value, part.shape)
    if value.dtype is not held.dtype:
        raise op_fault("buffer_store_slice", {"destination": destination, "source": value}, "dtypes must be equal")
    places = _places(held.shape)[indices].ravel()
    flat, updates = reshape(held, (-1,)), reshape(value, (-1,))
    scattered = emit("ScatterElements", [flat, current().constant(places), updates], flat.type, axis=0)
    destination.replace(reshape(scattered, held.shape))


def _places(shape: Shape) -> np.ndarray[Any, np.dtype[np.int64]]:
    sizes = shape.static_dims
    return np.arange(int(np.prod(sizes)), dtype=np.int64).reshape(sizes)
