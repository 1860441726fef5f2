"""WeightData: one weight's values with what is known of them; the form in which checkpoints reach a module."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from tidemill.driver.buffer import Buffer
from tidemill.driver.dlpack import DLPackArray
from tidemill.dtype import DType
from tidemill.weights.safetensors import Array

__all__ = ["WeightData"]


@dataclass(frozen=True, slots=True)
class WeightData:
    """A weight's values and description.

    Attributes:
        data: The values: a numpy array, a Buffer or another DLPack exporter.
        name: The weight's name.
        dtype: The element type.
        shape: The sizes.
        quantization_encoding: How the bytes encode numbers; None for plain elements.
    """

    data: DLPackArray
    name: str
    dtype: DType
    shape: tuple[int, ...]
    quantization_encoding: Any = None

    @classmethod
    def from_numpy(cls, array: Array, name: str) -> WeightData:
        """The description of an array, which is aliased."""
        return cls(array, name, DType.from_numpy(array.dtype), array.shape)

    def to_buffer(self) -> Buffer:
        """The values as a Buffer that shares their memory."""
        return Buffer.from_dlpack(self.data)

    def astype(self, dtype: DType) -> WeightData:
        """These values converted to another element type; itself if they have it already.

        Raises:
            ValueError: The values are quantised, so that elements are not numbers.
        """
        if dtype is self.dtype:
            return self
        if self.quantization_encoding is not None:
            raise ValueError(f"weight {self.name!r} is encoded as {self.quantization_encoding} and cannot be cast")
        return replace(self, data=self.to_buffer().to_numpy().astype(dtype.to_numpy()), dtype=dtype)

    def __dlpack__(self, **options: Any) -> Any:
        return self.to_buffer().__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.to_buffer().__dlpack_device__()
