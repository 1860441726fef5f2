"""Weights: named tensors whose values come from a checkpoint; they know no graph until one uses them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tidemill.dtype import DType
from tidemill.graph.context import current_or_none
from tidemill.graph.quantization import QuantizationEncoding
from tidemill.graph.shape import Shape, ShapeLike
from tidemill.graph.type import DeviceRef, TensorType
from tidemill.graph.value import TensorValue

__all__ = ["Weight"]


class Weight(TensorValue):
    """A tensor that a module owns.

    Inside a graph it is a value like any other; outside only its description can be read. It keeps no trace of the
    graphs that used it, so a module can be traced, copied and pickled at any time.

    Args:
        name: Its name within the owner; `state_dict` and `load_state_dict` turn it into the full name.
        dtype: The element type.
        shape: The dims; symbolic ones take any size.
        device: Where it lives.
        quantization_encoding: How the bytes are packed, None for plain numbers.
        align: The alignment of its data in bytes, None for the dtype's own.
        sharding_strategy: How it would be cut over several devices; kept, but never applied.

    Attributes:
        value: What it was loaded with; None before, and after its dtype or shape was set.

    Raises:
        ValueError: The name is empty.
    """

    def __init__(
        self,
        name: str,
        dtype: DType,
        shape: ShapeLike,
        device: DeviceRef | None = None,
        quantization_encoding: QuantizationEncoding | None = None,
        align: int | None = None,
        sharding_strategy: Any = None,
    ) -> None:
        if not name:
            raise ValueError("a Weight needs a name: it is the last part of its key in the state dict")
        self._name = self._local_name = name
        self.value: Any = None
        self._type = TensorType(dtype, shape, device)
        self.quantization_encoding = quantization_encoding
        self.align = align if align is not None or dtype is DType.string else dtype.align
        self.sharding_strategy = sharding_strategy
        self._declared = (dtype, Shape(self._type.shape))

    def __tensorvalue__(self) -> TensorValue:
        """The value of this weight in the graph being traced."""
        graph = current_or_none()
        if graph is None:
            raise ValueError("Cannot operate on a `tidemill.graph.Weight` when there is no parent graph.")
        return graph.add_weight(self)

    @property
    def name(self) -> str:
        """Its name: the one it was given, or its full name once a state dict was read or loaded."""
        return self._name

    @name.setter
    def name(self, name: str) -> None:
        self._name = self._local_name = name

    @property
    def local_name(self) -> str:
        """Its name within its owner, whatever state dicts were read since."""
        return self._local_name

    def give_full_name(self, name: str) -> None:
        """Call it by its full name from now on; within its owner it keeps its own."""
        self._name = name

    @property
    def type(self) -> TensorType:
        """dtype, shape and device."""
        return self._type

    @property
    def dtype(self) -> DType:
        """The element type."""
        return self._type.dtype

    @dtype.setter
    def dtype(self, dtype: DType) -> None:
        self._type = self._type.cast(dtype)
        self.value = None

    @property
    def shape(self) -> Shape:
        """The dims."""
        return Shape(self._type.shape)

    @shape.setter
    def shape(self, shape: ShapeLike) -> None:
        self._type = self._type.with_shape(shape)
        self.value = None

    @property
    def original_dtype_and_shape(self) -> tuple[DType, Shape]:
        """dtype and shape as they were declared, whatever was set since."""
        return self._declared

    def shard(self, devices: Sequence[DeviceRef]) -> list[Weight]:
        """The weight cut over devices: itself for one.

        Raises:
            NotImplementedError: There are several; a model runs on one device here.
        """
        if len(list(devices)) == 1:
            return [self]
        raise NotImplementedError(
            f"weight {self.name!r} can not be cut over {len(list(devices))} devices: a model runs on one device; "
            "serve several instances of it instead"
        )

    def __repr__(self) -> str:
        encoding = f", {self.quantization_encoding}" if self.quantization_encoding is not None else ""
        return f"Weight({self.name}, {self.dtype!r}, {list(self.shape)}, {self.device}{encoding})"
