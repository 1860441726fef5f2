"""Tensors as numpy's own file format; never runs what a file says, and knows no requests."""

from __future__ import annotations

import io
import re

import numpy as np

from tidemill.dtype import DType
from tidemill.errors import InvalidArgument
from tidemill.protocol.tensors import element_count
from tidemill.protocol.types import Array

__all__ = ["from_npy", "to_npy"]

_MAX_HEADER = 10_000
_DESCR = re.compile(r"['\"]descr['\"]\s*:\s*['\"]([<>|=]?[a-zA-Z][0-9]{0,9})['\"]")
_ORDER = re.compile(r"['\"]fortran_order['\"]\s*:\s*(True|False)")
_SHAPE = re.compile(r"['\"]shape['\"]\s*:\s*\(([-0-9, ]*)\)")
_DIM = re.compile(r"-?[0-9]{1,30}")


def from_npy(body: bytes | bytearray | memoryview, dtype: DType, *, name: str = "tensor") -> Array:
    """Read a .npy file.

    Args:
        body: The whole file.
        dtype: What the tensor is to be; numpy has no name for BF16 and the 8-bit floats and writes them as bare bytes.
        name: What errors call the tensor.

    Returns:
        A view of `body` where its order and alignment allow it, else a copy. Text becomes BYTES.

    Raises:
        InvalidArgument: The file is damaged, or holds another dtype or Python objects.
    """
    view = memoryview(body)
    shape, fortran, given, start = _header(view, name)
    if given.hasobject:
        raise InvalidArgument(
            f"{name}: the .npy file holds Python objects, which are never read; send text as 'S' or 'U'"
        )
    if given.kind == "V" and dtype is not DType.string and given.itemsize == dtype.size_in_bytes:
        given = dtype.to_numpy()
    count = element_count(shape, name=name)
    if len(view) - start != count * given.itemsize:
        raise InvalidArgument(
            f"{name}: the .npy file has {len(view) - start} bytes of data, expected {count * given.itemsize} for "
            f"{given} of shape {list(shape)}"
        )
    array = np.frombuffer(view[start:], dtype=given) if given.itemsize else np.zeros(count, given)
    array = array.reshape(shape[::-1]).T if fortran else array.reshape(shape)
    return _native(array, dtype, name)


def to_npy(array: Array) -> bytes:
    """Write a .npy file; BYTES become numpy's 'S', which cannot hold trailing zeros.

    Raises:
        InvalidArgument: A BYTES element ends in a zero byte.
    """
    if DType.from_numpy(array.dtype) is DType.string:
        array = _as_fixed(array)
    file = io.BytesIO()
    # A scalar stays one: np.ascontiguousarray would give it an axis.
    np.save(file, np.asarray(array, dtype=array.dtype.newbyteorder("="), order="C"), allow_pickle=False)
    return file.getvalue()


def _header(view: memoryview, name: str) -> tuple[tuple[int, ...], bool, np.dtype[np.generic], int]:
    text, start = _header_text(view, name)
    # numpy's own reader evaluates the header as Python; its few forms need no evaluation.
    found = [pattern.findall(text) for pattern in (_DESCR, _ORDER, _SHAPE)]
    if any(len(matches) != 1 for matches in found):
        raise InvalidArgument(f"{name}: the .npy header {text[:200]!r} has no plain descr, fortran_order and shape")
    (descr,), (order,), (dims,) = found
    try:
        dtype = np.dtype(descr)
    except TypeError as error:
        raise InvalidArgument(f"{name}: the .npy file has dtype {descr[:50]!r}: {error}") from None
    return tuple(map(int, _DIM.findall(dims))), order == "True", dtype, start


def _header_text(view: memoryview, name: str) -> tuple[str, int]:
    magic, version = bytes(view[:6]), bytes(view[6:8])
    width = {b"\1\0": 2, b"\2\0": 4, b"\3\0": 4}.get(version)
    if magic != b"\x93NUMPY" or width is None:
        raise InvalidArgument(f"{name}: the body is no .npy file of version 1, 2 or 3")
    start = 8 + width
    end = start + int.from_bytes(view[8:start], "little")
    if end > min(len(view), _MAX_HEADER):
        raise InvalidArgument(
            f"{name}: the .npy header ends at byte {end} of {len(view)}, at most {_MAX_HEADER} are read"
        )
    return bytes(view[start:end]).decode("utf-8", "replace"), end


def _native(array: Array, dtype: DType, name: str) -> Array:
    try:
        given = DType.from_numpy(array.dtype)
    except TypeError as error:
        raise InvalidArgument(f"{name}: {error}") from None
    if given is not dtype:
        raise InvalidArgument(f"{name} has datatype {given.wire} in the .npy file, expected {dtype.wire}")
    if dtype is DType.string:
        texts = [text.encode() if isinstance(text, str) else text for text in array.reshape(-1).tolist()]
        elements = np.empty(len(texts), dtype=np.object_)
        elements[:] = texts
        return elements.reshape(array.shape)
    if dtype is DType.bool and array.size and array.view(np.uint8).max() > 1:
        raise InvalidArgument(f"{name} is BOOL and holds a byte that is neither 0 nor 1")
    native = np.asarray(array, dtype=dtype.to_numpy(), order="C")
    return native if native.flags.aligned else native.copy()


def _as_fixed(array: Array) -> Array:
    texts = [text.encode() if isinstance(text, str) else text for text in array.reshape(-1).tolist()]
    if any(text.endswith(b"\0") for text in texts):
        raise InvalidArgument("text that ends in a zero byte has no exact .npy form; ask for another content type")
    return np.array(texts, dtype=np.bytes_).reshape(array.shape)
