"""Buffer: an array with a dtype and a place, shared with numpy and DLPack and never copied unasked."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tidemill.driver.device import CPU, Device
from tidemill.driver.device_memory import DeviceMemory
from tidemill.driver.dlpack import DLPackArray, export_array, import_array
from tidemill.dtype import DType

__all__ = ["Buffer"]

_Array = npt.NDArray[Any]
_HOST_DEVICE_TYPES = (1, 3)  # kDLCPU and kDLCUDAHost of dlpack.h


class Buffer:
    """A tensor's memory on the host or on an accelerator.

    Args:
        dtype: The element type.
        shape: The sizes; the content is undefined, see `zeros`.
        device: Where; the host if not given.
    """

    __slots__ = ("_device", "_storage")

    _storage: _Array | DeviceMemory
    _device: Device

    def __init__(self, dtype: DType, shape: Sequence[int], device: Device | None = None) -> None:
        self._place(np.empty(shape, dtype.to_numpy()), device)

    @classmethod
    def zeros(cls, shape: Sequence[int], dtype: DType, device: Device | None = None) -> Buffer:
        """A buffer filled with zeros."""
        return cls._of(np.zeros(shape, dtype.to_numpy()), device)

    @classmethod
    def scalar(cls, value: float | bool, dtype: DType, device: Device | None = None) -> Buffer:
        """A buffer of rank 0."""
        return cls._of(np.array(value, dtype.to_numpy()), device)

    @classmethod
    def from_numpy(cls, array: _Array) -> Buffer:
        """A buffer that aliases the array: a change of one shows in the other.

        Raises:
            TypeError: It is no numpy array or its dtype is no tensor's.
            ValueError: Its bytes are not in this machine's order.
        """
        if not isinstance(array, np.ndarray):
            raise TypeError(f"from_numpy takes a numpy array, given was {type(array).__name__}; see from_dlpack")
        if array.dtype.kind in "SU":
            raise TypeError(f"numpy dtype {array.dtype} has no element type; use an object array of bytes")
        DType.from_numpy(array.dtype)
        if not array.dtype.isnative:
            raise ValueError(
                f"the array's dtype {array.dtype.str} is not in this machine's byte order; "
                "convert it: array.astype(array.dtype.newbyteorder('='))"
            )
        return cls._of(array)

    @classmethod
    def from_dlpack(cls, array: DLPackArray) -> Buffer:
        """A buffer that shares the memory of a Buffer, a numpy array or any other DLPack exporter on the host.

        Raises:
            TypeError: It does not speak DLPack.
            BufferError: Its memory is not on the host, or its element type is no tensor's.
        """
        if isinstance(array, Buffer):
            return cls._of(array._storage, array.device)
        if isinstance(array, np.ndarray):
            return cls.from_numpy(array)
        if not hasattr(array, "__dlpack__"):
            raise TypeError(f"{type(array).__name__} does not implement DLPack; use a numpy array or a Buffer")
        kind, _ = array.__dlpack_device__()
        if kind not in _HOST_DEVICE_TYPES:
            raise BufferError(f"the {type(array).__name__} is on DLPack device type {kind}; copy it to the host first")
        return cls.from_numpy(import_array(array))

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes."""
        return self._storage.shape

    @property
    def dtype(self) -> DType:
        """The element type."""
        return _dtype(self._storage)

    @property
    def rank(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def num_elements(self) -> int:
        """The product of the sizes."""
        return math.prod(self.shape)

    @property
    def element_size(self) -> int:
        """Bytes of one element."""
        return self.dtype.size_in_bytes

    @property
    def device(self) -> Device:
        """Where the memory is."""
        return self._device

    @property
    def is_host(self) -> bool:
        """Whether the memory is on the host."""
        return self._device.is_host

    @property
    def is_contiguous(self) -> bool:
        """Whether the elements lie in C order without gaps."""
        return isinstance(self._storage, DeviceMemory) or bool(self._storage.flags.c_contiguous)

    def to_numpy(self) -> _Array:
        """The array itself on the host; a copy of what is on an accelerator."""
        return self._storage.to_host() if isinstance(self._storage, DeviceMemory) else self._storage

    def to(self, device: Device) -> Buffer:
        """This buffer if it is there already, else a copy on the device."""
        return self if device == self._device else Buffer._of(self.to_numpy(), device)

    def copy(self) -> Buffer:
        """A buffer with memory of its own, contiguous, on the same device."""
        return Buffer._of(self.to_numpy().copy(order="C"), self._device)

    def contiguous(self) -> Buffer:
        """This buffer if it is contiguous, else a copy that is."""
        return self if self.is_contiguous else self.copy()

    def item(self) -> Any:
        """The one element as a Python value.

        Raises:
            ValueError: There is not exactly one element.
        """
        if self.num_elements != 1:
            raise ValueError(f"item() takes a buffer of one element, this one has shape {list(self.shape)}")
        return self.to_numpy().item()

    def view(self, dtype: DType, shape: Sequence[int] | None = None) -> Buffer:
        """The same bytes with another element type, and another shape if given.

        Raises:
            ValueError: The bytes do not fit.
        """
        array = self._host("view").view(dtype.to_numpy())
        return Buffer._of(array if shape is None else array.reshape(shape, copy=False))

    def inplace_copy_from(self, source: Buffer) -> None:
        """Overwrite the elements with those of a buffer of equal shape and dtype."""
        if (source.shape, source.dtype) != (self.shape, self.dtype):
            raise ValueError(f"cannot copy {source!r} into {self!r}; shape and dtype must be equal")
        self._host("inplace_copy_from")[...] = source.to_numpy()

    def __getitem__(self, index: Any) -> Buffer:
        return Buffer._of(np.asarray(self._host("indexing")[index]))

    def __setitem__(self, index: Any, value: Any) -> None:
        self._host("assignment")[index] = value

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("a buffer of rank 0 has no length")
        return self.shape[0]

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> _Array:
        return np.array(self.to_numpy(), dtype=dtype, copy=copy)

    def __dlpack__(self, **options: Any) -> Any:
        return export_array(self._host("DLPack"), **options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, self._device.id) if self.is_host else (2, self._device.id)

    def __repr__(self) -> str:
        place = "" if self.is_host else f", {self._device.label}:{self._device.id}"
        return f"Buffer({list(self.shape)}, {self.dtype!r}{place})"

    @classmethod
    def _of(cls, storage: _Array | DeviceMemory, device: Device | None = None) -> Buffer:
        buffer = object.__new__(cls)
        buffer._place(storage, device)
        return buffer

    def _place(self, storage: _Array | DeviceMemory, device: Device | None) -> None:
        self._device = device or CPU()
        if isinstance(storage, np.ndarray) and not self._device.is_host:
            storage = DeviceMemory.copy_of(storage, self._device)
        self._storage = storage

    def _host(self, purpose: str) -> _Array:
        if isinstance(self._storage, DeviceMemory):
            raise BufferError(f"{purpose} needs a buffer on the host, this one is on {self._device}; use to(CPU())")
        return self._storage


def _dtype(storage: _Array | DeviceMemory) -> DType:
    return storage.dtype if isinstance(storage, DeviceMemory) else DType.from_numpy(storage.dtype)
