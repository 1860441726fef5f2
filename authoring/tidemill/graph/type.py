"""What is known of a value before it exists: dtype, shape and device; knows no graph."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from tidemill.dtype import DType
from tidemill.graph.dim import AlgebraicDim, Dim, StaticDim
from tidemill.graph.shape import Shape, ShapeLike
from tidemill.protocol.types import TensorSpec

__all__ = ["BufferType", "DeviceRef", "TensorType", "Type"]


@dataclass(frozen=True, slots=True)
class DeviceRef:
    """Where a value lives: a hint for the execution provider, not a placement.

    Attributes:
        device_type: "cpu" or "gpu".
        id: Which of them.
    """

    device_type: str
    id: int = 0

    @staticmethod
    def CPU(id: int = 0) -> DeviceRef:  # noqa: N802  (the seed's names)
        """The host."""
        return DeviceRef("cpu", id)

    @staticmethod
    def GPU(id: int = 0) -> DeviceRef:  # noqa: N802
        """An accelerator."""
        return DeviceRef("gpu", id)

    def is_cpu(self) -> bool:
        """Whether this is the host."""
        return self.device_type == "cpu"

    def is_gpu(self) -> bool:
        """Whether this is an accelerator."""
        return self.device_type == "gpu"

    def __str__(self) -> str:
        return f"{self.device_type}:{self.id}"

    __repr__ = __str__


class Type:
    """The type of a graph value: what tensors and buffers have in common.

    Args:
        dtype: The element type.
        shape: Sizes, names of symbolic dims, or Dims: `["batch", 4]`.
        device: Where it lives; the host by default.
    """

    __slots__ = ("device", "dtype", "shape")

    def __init__(self, dtype: DType, shape: ShapeLike, device: DeviceRef | None = None) -> None:
        if not isinstance(dtype, DType):
            raise TypeError(f"{type(self).__name__} needs a DType first, not {dtype!r} ({type(dtype).__name__})")
        self.dtype = dtype
        self.shape = Shape(shape)
        if any(isinstance(dim, StaticDim) and dim.dim < 0 for dim in self.shape):
            raise ValueError(f"{type(self).__name__} has the shape {self.shape}; sizes are 0 or more, or names")
        self.device = device or DeviceRef.CPU()

    @property
    def rank(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def num_elements(self) -> Dim:
        """The product of the dims."""
        return self.shape.num_elements

    def cast(self, dtype: DType) -> Self:
        """The same shape and device with another element type."""
        return type(self)(dtype, self.shape, self.device)

    def with_shape(self, shape: ShapeLike) -> Self:
        """The same element type and device with another shape."""
        return type(self)(self.dtype, shape, self.device)

    def substitute(self, sizes: Mapping[str, Dim]) -> Self:
        """This type with symbols replaced by the dims of `sizes`."""
        return self.with_shape(self.shape.substitute(sizes))

    def spec(self, name: str) -> TensorSpec:
        """This type as a signature entry; dims that are arithmetic have no name there."""
        return TensorSpec(name, self.dtype, tuple(_spec_dim(dim) for dim in self.shape))

    def __eq__(self, other: Any) -> bool:
        return (
            type(self) is type(other)
            and (self.dtype, self.device) == (other.dtype, other.device)
            and self.shape == other.shape
        )

    def __hash__(self) -> int:
        return hash((type(self), self.dtype, tuple(self.shape), self.device))

    def __repr__(self) -> str:
        return f"{type(self).__name__}(dtype={self.dtype.name}, shape={list(self.shape)}, device={self.device})"


class TensorType(Type):
    """The type of a tensor, a value that never changes.

    Args:
        dtype: The element type.
        shape: Sizes, names of symbolic dims, or Dims: `["batch", 4]`.
        device: Where it lives; the host by default.
    """

    __slots__ = ()


class BufferType(Type):
    """The type of a buffer, an input that the graph may change in place.

    Args:
        dtype: The element type.
        shape: Sizes, names of symbolic dims, or Dims.
        device: Where it lives; the host by default.
    """

    __slots__ = ()

    def as_tensor(self) -> TensorType:
        """The type of the buffer's content."""
        return TensorType(self.dtype, self.shape, self.device)


def _spec_dim(dim: Dim) -> int | str:
    if isinstance(dim, StaticDim):
        return dim.dim
    return "" if isinstance(dim, AlgebraicDim) else str(dim)
