"""DLPack for every element type; numpy's own refuses bfloat16 and the 8-bit floats."""

from __future__ import annotations

import ctypes
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from tidemill.dtype import DType

__all__ = ["DLPackArray", "export_array", "import_array"]

_UINT = 1
# Codes of DLDataTypeCode in dlpack.h 1.1.
_CODES = {
    DType.bfloat16: 4,
    DType.float8_e4m3fn: 10,
    DType.float8_e4m3fnuz: 11,
    DType.float8_e5m2: 12,
    DType.float8_e5m2fnuz: 13,
}
_DTYPES = {code: dtype for dtype, code in _CODES.items()}

# Where DLTensor.dtype.code lies: after data, device and ndim; a versioned capsule puts version, context, deleter and
# flags before the tensor.
_CODE_OFFSETS = {b"dltensor": 20, b"dltensor_versioned": 32 + 20}

_get_name = ctypes.pythonapi.PyCapsule_GetName
_get_name.restype, _get_name.argtypes = ctypes.c_char_p, [ctypes.py_object]
_get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_get_pointer.restype, _get_pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]


class DLPackArray(Protocol):
    """Anything that shares its memory by DLPack: numpy and torch arrays, Buffers, OrtValues."""

    def __dlpack__(self) -> Any:
        """A capsule over the memory."""

    def __dlpack_device__(self) -> tuple[int, int]:
        """The kind and number of the device, as in dlpack.h."""
        ...


def export_array(array: npt.NDArray[Any], **options: Any) -> Any:
    """A DLPack capsule that shares the array's memory.

    Args:
        array: Of any tensor dtype with elements of fixed size.
        **options: `stream`, `max_version`, `dl_device` and `copy` as in the array API.

    Raises:
        BufferError: The array is read-only and the consumer cannot be told so.
    """
    code = _CODES.get(DType.from_numpy(array.dtype))
    if code is None:
        return array.__dlpack__(**options)
    capsule = array.view(f"u{array.itemsize}").__dlpack__(**options)
    _code_of(capsule).value = code
    return capsule


def import_array(source: DLPackArray) -> npt.NDArray[Any]:
    """An array that shares the memory of any DLPack exporter on the host.

    Raises:
        BufferError: The exporter does not share its memory with the host, or has a type that is no tensor's.
    """
    exporter = _Exporter(source)
    try:
        array = np.from_dlpack(exporter)
    except RuntimeError as error:
        raise BufferError(f"a {type(source).__name__} cannot be taken: {error}") from None
    return array if exporter.dtype is None else array.view(exporter.dtype.to_numpy())


class _Exporter:
    """Shows narrow floats to numpy as unsigned integers, and remembers what they were."""

    def __init__(self, source: Any) -> None:
        self._source = source
        self.dtype: DType | None = None

    def __dlpack__(self, **options: Any) -> Any:
        capsule = self._source.__dlpack__(**options)
        code = _code_of(capsule)
        self.dtype = _DTYPES.get(code.value)
        if self.dtype is not None:
            code.value = _UINT
        return capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        device: tuple[int, int] = self._source.__dlpack_device__()
        return device


def _code_of(capsule: Any) -> ctypes.c_uint8:
    name = _get_name(capsule)
    return ctypes.c_uint8.from_address(_get_pointer(capsule, name) + _CODE_OFFSETS[name])
