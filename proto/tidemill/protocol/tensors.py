"""Tensors as raw little-endian bytes, the form that both wires share; knows nothing of requests.

Elements follow each other in row-major order without padding. A BYTES element is its length as a uint32 followed by
its bytes. Errors name the tensor as the caller calls it (`input 'x'`).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np

from tidemill.dtype import DType
from tidemill.errors import InvalidArgument
from tidemill.protocol.types import Array

__all__ = ["element_count", "from_bytes", "to_bytes"]

_MAX_RANK = 32
_MAX_ELEMENTS = 2**60 - 1  # of the widest type, all that a 64-bit address space could hold
_LENGTH = struct.Struct("<I")


def element_count(shape: Sequence[int], *, name: str = "tensor") -> int:
    """The number of elements of a shape that a caller sent.

    Raises:
        InvalidArgument: A dim is negative, there are more than 32, or no memory could ever hold the tensor.
    """
    if len(shape) > _MAX_RANK:
        raise InvalidArgument(f"{name} has {len(shape)} dims, at most {_MAX_RANK} are allowed")
    count = extent = 1
    for dim in shape:
        if dim < 0:
            raise InvalidArgument(f"{name} has shape {list(shape)}; a tensor's dims must not be negative")
        count *= dim
        # numpy leaves zeros out of its limit: [0, 2**62] has no element and is refused all the same.
        extent *= dim or 1
    if extent > _MAX_ELEMENTS:
        raise InvalidArgument(f"{name} has shape {list(shape)}, larger than any memory")
    return count


def from_bytes(
    buffer: bytes | bytearray | memoryview, dtype: DType, shape: Sequence[int], *, name: str = "tensor"
) -> Array:
    """Read a tensor.

    Args:
        buffer: Exactly the tensor's bytes.
        dtype: The element type.
        shape: The dims, not yet trusted.
        name: What errors call the tensor.

    Returns:
        A view of `buffer`, or a copy where the elements do not lie aligned in memory (compiled kernels may crash on
        those). BYTES tensors are object arrays of `bytes`.

    Raises:
        InvalidArgument: The shape is impossible, or the buffer does not hold exactly its elements.
    """
    count = element_count(shape, name=name)
    if dtype is DType.string:
        return _split(memoryview(buffer), count, name).reshape(shape)
    element = dtype.to_numpy()
    expected = count * element.itemsize
    if len(buffer) != expected:
        raise InvalidArgument(
            f"{name} has {len(buffer)} bytes, expected {expected} for {dtype.wire} of shape {list(shape)}"
        )
    array = np.frombuffer(buffer, dtype=element).reshape(shape)
    if dtype is DType.bool:
        _check_bool(array, name)
    return array if array.flags.aligned else array.copy()


def to_bytes(array: Array, dtype: DType, *, name: str = "tensor") -> bytes | memoryview:
    """Write a tensor of any layout and byte order.

    Args:
        array: The tensor; its dtype must be `dtype`. BYTES tensors hold `bytes` or `str` (written as UTF-8).
        dtype: The element type on the wire.
        name: What errors call the tensor.

    Returns:
        The bytes: a view of the array's memory where that is possible.

    Raises:
        InvalidArgument: The array is of another type, or holds something else than byte strings.
    """
    given = DType.from_numpy(array.dtype)
    if given is not dtype:
        raise InvalidArgument(f"{name} holds {given.wire}, expected {dtype.wire}")
    if dtype is DType.string:
        return _join(array, name)
    native = np.ascontiguousarray(array, dtype=dtype.to_numpy())
    return native.reshape(-1).view(np.uint8).data


def _check_bool(array: Array, name: str) -> None:
    if array.size and array.view(np.uint8).max() > 1:
        raise InvalidArgument(f"{name} is BOOL and holds a byte that is neither 0 nor 1")


def _split(buffer: memoryview, count: int, name: str) -> Array:
    if count * _LENGTH.size > len(buffer):
        raise InvalidArgument(f"{name} has {len(buffer)} bytes, too few for {count} BYTES elements")
    elements = np.empty(count, dtype=np.object_)
    offset = 0
    for index in range(count):
        start = offset + _LENGTH.size
        if start > len(buffer):
            raise InvalidArgument(f"{name} ends inside the length of element {index} (of {count})")
        (length,) = _LENGTH.unpack_from(buffer, offset)
        offset = start + length
        if offset > len(buffer):
            left = len(buffer) - start
            raise InvalidArgument(f"{name}: element {index} claims {length} bytes, {left} are left")
        elements[index] = bytes(buffer[start:offset])
    if offset != len(buffer):
        raise InvalidArgument(f"{name} has {len(buffer) - offset} bytes after its {count} elements")
    return elements


def _join(array: Array, name: str) -> bytes:
    parts: list[bytes] = []
    for index, element in enumerate(array.reshape(-1).tolist()):
        encoded = element.encode() if isinstance(element, str) else element
        if not isinstance(encoded, bytes):
            raise InvalidArgument(f"{name}: element {index} is of type {type(element).__name__}, expected bytes or str")
        parts += (_LENGTH.pack(len(encoded)), encoded)
    return b"".join(parts)
