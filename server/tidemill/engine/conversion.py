"""Between numpy and what ONNX Runtime takes and gives, for every dtype; knows no session."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from tidemill.driver.device import Device
from tidemill.dtype import DType
from tidemill.engine.runtime import onnxruntime
from tidemill.errors import InvalidArgument
from tidemill.protocol.types import Array

__all__ = ["decode_strings", "encode_strings", "from_ort_value", "is_native", "to_ort_value"]


def is_native(dtype: DType) -> bool:
    """Whether ONNX Runtime's Python API takes and gives numpy arrays of this dtype; it lacks BF16 and FP8."""
    return dtype is DType.string or dtype.to_numpy().isbuiltin == 1


def to_ort_value(array: Array, device: Device | None = None) -> Any:
    """An OrtValue that shares the array's memory (a copy if it is not contiguous), or is a copy on an accelerator.

    BF16 and FP8 stay on the host, as ONNX Runtime's Python API cannot place them elsewhere.
    """
    value, dtype = onnxruntime().OrtValue, DType.from_numpy(array.dtype)
    if is_native(dtype):
        return value.ortvalue_from_numpy(array, *((device.api, device.id) if device else ()))
    return value.ortvalue_from_numpy_with_onnx_type(np.asarray(array, order="C"), dtype.onnx)


def from_ort_value(value: Any, dtype: DType) -> Array:
    """The OrtValue's tensor: shared memory, or a copy for the dtypes that the Python API cannot show."""
    if is_native(dtype):
        array: Array = value.numpy()
        return array
    array = np.empty(value.shape(), dtype.to_numpy())
    ctypes.memmove(array.ctypes.data, value.data_ptr(), array.nbytes)
    return array


def decode_strings(name: str, array: Array) -> Array:
    """An object array of `str` from one of `bytes`.

    Raises:
        InvalidArgument: An element is not UTF-8, which is all that ONNX strings can be.
    """
    try:
        texts = [item.decode() if isinstance(item, bytes) else str(item) for item in array.ravel().tolist()]
    except UnicodeDecodeError as error:
        raise InvalidArgument(f"input {name!r} has an element that is not UTF-8: {error}") from None
    return _objects(texts, array.shape)


def encode_strings(array: Array) -> Array:
    """An object array of `bytes` from one of `str`."""
    return _objects([item.encode() for item in array.ravel().tolist()], array.shape)


def _objects(items: list[Any], shape: tuple[int, ...]) -> Array:
    return np.fromiter(items, np.object_, len(items)).reshape(shape)
