"""Tensors as JSON values, exactly or not at all; knows nothing of requests.

Numbers stand for every numeric type, the 16- and 8-bit floats included. JSON has no NaN and no infinities: `null` is
written for both and read as NaN.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np
import orjson

from tidemill.dtype import DType
from tidemill.errors import InvalidArgument
from tidemill.protocol.integers import from_integers
from tidemill.protocol.tensors import element_count
from tidemill.protocol.types import Array

__all__ = ["from_json", "to_json"]

_MAX_DEPTH = 100


def from_json(data: object, dtype: DType, shape: Sequence[int], *, name: str = "tensor") -> Array:
    """Read a tensor from decoded JSON.

    Args:
        data: A flat list, a nested one of any depth (flattened in order), or a bare value for a scalar.
        dtype: The element type.
        shape: The dims, not yet trusted.
        name: What errors call the tensor.

    Raises:
        InvalidArgument: An element is of the wrong JSON type or does not fit the dtype, or their number is wrong.
    """
    count = element_count(shape, name=name)
    values = _flatten(data if isinstance(data, list) or shape else [data], name)
    if len(values) != count:
        raise InvalidArgument(f"{name} has {len(values)} values, expected {count} for shape {list(shape)}")
    return _convert(values, dtype, name).reshape(shape)


def to_json(array: Array, *, nested: bool = False, name: str = "tensor") -> orjson.Fragment:
    """A tensor as JSON, ready to stand inside a document for orjson.

    Args:
        array: The tensor, of any layout and byte order.
        nested: Whether to write one list an axis (a bare value for a scalar) instead of a flat list in row-major order.
        name: What errors call the tensor.

    Raises:
        InvalidArgument: A BYTES element is not UTF-8 and so has no JSON form.
    """
    dtype = DType.from_numpy(array.dtype)
    if dtype is DType.string:
        texts = np.array([_text(item, name) for item in array.reshape(-1).tolist()], dtype=np.object_)
        return orjson.Fragment(orjson.dumps(texts.reshape(array.shape).tolist() if nested else texts.tolist()))
    native = np.asarray(array, dtype=_json_dtype(dtype), order="C")
    if nested and not native.ndim:
        return orjson.Fragment(orjson.dumps(native[()], option=orjson.OPT_SERIALIZE_NUMPY))
    return orjson.Fragment(orjson.dumps(native if nested else native.reshape(-1), option=orjson.OPT_SERIALIZE_NUMPY))


def _flatten(data: object, name: str) -> list[Any]:
    if not isinstance(data, list):
        raise InvalidArgument(f"{name}: data is {_json_type(data)}, expected a list")
    for _ in range(_MAX_DEPTH):
        kinds = set(map(type, data))
        if list not in kinds:
            return data
        if len(kinds) > 1:
            raise InvalidArgument(f"{name}: data mixes lists and values on one level")
        data = list(chain.from_iterable(data))
    raise InvalidArgument(f"{name}: data is nested deeper than {_MAX_DEPTH} lists")


def _convert(values: list[Any], dtype: DType, name: str) -> Array:
    if dtype is DType.string:
        _check_types(values, {str}, dtype, name)
        array = np.empty(len(values), dtype=np.object_)
        array[:] = [value.encode() for value in values]
        return array
    if dtype is DType.bool:
        _check_types(values, {bool}, dtype, name)
        return np.array(values, dtype=np.bool_)
    if dtype.is_float():
        _check_types(values, {int, float, type(None)}, dtype, name)
        return _floats(values, dtype, name)
    _check_types(values, {int}, dtype, name)
    return from_integers(values, dtype, name=name)


def _floats(values: list[Any], dtype: DType, name: str) -> Array:
    wide = np.array(values, dtype=np.float64)
    with np.errstate(over="ignore", under="ignore"):
        narrow = wide.astype(dtype.to_numpy(), copy=False)
    finite = np.isfinite(narrow)
    if not finite.all():
        # The 8-bit floats without an infinity overflow to NaN, so finiteness is what tells.
        _check_overflow(values, np.isfinite(wide) & ~finite, dtype, name)
    return narrow


def _check_overflow(values: list[Any], overflown: Array, dtype: DType, name: str) -> None:
    if overflown.any():
        index = int(overflown.argmax())
        import ml_dtypes  # late, for it can take seconds

        highest = ml_dtypes.finfo(dtype.to_numpy()).max  # type: ignore[no-untyped-call]
        raise InvalidArgument(
            f"{name}: {values[index]} at index {index} does not fit {dtype.wire}, whose largest value is {highest}"
        )


def _check_types(values: list[Any], allowed: set[type], dtype: DType, name: str) -> None:
    if set(map(type, values)) <= allowed:
        return
    index = next(index for index, value in enumerate(values) if type(value) not in allowed)
    raise InvalidArgument(
        f"{name}: the value at index {index} is {_json_type(values[index])}, which {dtype.wire} does not take"
    )


def _json_dtype(dtype: DType) -> np.dtype[np.generic]:
    widened = dtype.is_float() and dtype not in (DType.float16, DType.float32, DType.float64)
    return np.dtype(np.float32) if widened else dtype.to_numpy()


def _text(element: object, name: str) -> str:
    if isinstance(element, str):
        return element
    try:
        return bytes(element).decode()  # type: ignore[call-overload,no-any-return]
    except UnicodeDecodeError:
        raise InvalidArgument(
            f"{name} holds bytes that are not UTF-8 and have no JSON form; ask for it as binary data"
        ) from None


def _json_type(value: object) -> str:
    kinds = {str: "a string", bool: "a boolean", int: "a whole number", float: "a fraction or beyond 64 bits"}
    return kinds.get(type(value), "null" if value is None else "an object" if isinstance(value, dict) else "a list")
