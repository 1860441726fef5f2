"""Memory that numpy cannot see, held by ONNX Runtime; the only file that copies between host and accelerator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tidemill.driver.device import Device, require_onnxruntime
from tidemill.dtype import DType

__all__ = ["DeviceMemory"]


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    """A tensor on a device.

    Attributes:
        value: The `onnxruntime.OrtValue` that owns the memory.
        dtype: The element type.
        shape: The sizes.
    """

    value: Any
    dtype: DType
    shape: tuple[int, ...]

    @classmethod
    def copy_of(cls, array: npt.NDArray[Any], device: Device) -> DeviceMemory:
        """Copy an array of the host to a device.

        Raises:
            TypeError: ONNX Runtime's Python API cannot place this dtype there.
        """
        dtype = DType.from_numpy(array.dtype)
        if array.dtype.isbuiltin != 1 or dtype is DType.string:
            raise TypeError(f"a buffer of {dtype!r} cannot be copied to {device}; cast it first")
        runtime = require_onnxruntime(f"a buffer on {device}")
        value = runtime.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(array), device.api, device.id)
        return cls(value, dtype, array.shape)

    def to_host(self) -> npt.NDArray[Any]:
        """Copy the tensor into a new array."""
        array: npt.NDArray[Any] = self.value.numpy()
        return array
