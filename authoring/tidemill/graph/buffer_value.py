"""Buffers as they are traced: an input whose content changes as operators write to it."""

from __future__ import annotations

from typing import Any

from tidemill.dtype import DType
from tidemill.graph.context import as_tensor
from tidemill.graph.ops import buffer, indexing
from tidemill.graph.shape import Shape
from tidemill.graph.type import BufferType, DeviceRef
from tidemill.graph.value import TensorValue, Value

__all__ = ["BufferValue"]


class BufferValue(Value):
    """A buffer that a graph may change in place: `buffer[...]` reads, `buffer[...] = x` writes.

    ONNX has no mutable state, so the final content becomes one more output of the model; a `Model` writes it back into
    the buffer that it was called with.
    """

    def __init__(self, type: BufferType, content: TensorValue) -> None:
        self._type = type
        self._content = content
        self.is_changed = False

    @property
    def content(self) -> TensorValue:
        """What it holds now."""
        return self._content

    def replace(self, content: TensorValue) -> None:
        """Make it hold something else; `ops.buffer_store` checks that it fits."""
        self._content = as_tensor(content)
        self.is_changed = True

    @property
    def buffer(self) -> BufferValue:
        """This value as a buffer."""
        return self

    @property
    def type(self) -> BufferType:
        """dtype, shape and device."""
        return self._type

    @property
    def dtype(self) -> DType:
        """The element type."""
        return self._type.dtype

    @property
    def shape(self) -> Shape:
        """The dims, a copy."""
        return Shape(self._type.shape)

    @property
    def device(self) -> DeviceRef:
        """Where it lives."""
        return self._type.device

    @property
    def rank(self) -> int:
        """The number of axes."""
        return self._type.rank

    def __getitem__(self, index: Any) -> TensorValue:
        return indexing.slice_tensor(buffer.buffer_load(self), index)

    def __setitem__(self, index: Any, value: Any) -> None:
        if index is Ellipsis or index == slice(None):
            buffer.buffer_store(self, value)
        else:
            buffer.buffer_store_slice(self, value, index)

    def __repr__(self) -> str:
        return f"BufferValue(dtype={self.dtype.name}, shape={list(self.shape)}, device={self.device})"
