"""The element types of tensors: one table for numpy, ONNX, the wire and safetensors; knows nothing of tensors."""

from __future__ import annotations

import builtins
from enum import Enum
from functools import cache
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

__all__ = ["DType"]

_K = TypeVar("_K")


class _Row(NamedTuple):
    """One line of the table: the element type's name in each format; None where the format lacks it."""

    numpy: np.dtype[np.generic] | None
    onnx: int
    wire: str
    safetensors: str | None


# ONNX numbers are those of TensorProto.DataType; wire names are the Open Inference Protocol's. The protocol has no
# name for 8-bit floats, so FP8_* are tidemill's own. What numpy itself lacks is in ml_dtypes under the member's name.
_TABLE: dict[str, _Row] = {
    "bool": _Row(np.dtype(np.bool_), 9, "BOOL", "BOOL"),
    "int8": _Row(np.dtype(np.int8), 3, "INT8", "I8"),
    "int16": _Row(np.dtype(np.int16), 5, "INT16", "I16"),
    "int32": _Row(np.dtype(np.int32), 6, "INT32", "I32"),
    "int64": _Row(np.dtype(np.int64), 7, "INT64", "I64"),
    "uint8": _Row(np.dtype(np.uint8), 2, "UINT8", "U8"),
    "uint16": _Row(np.dtype(np.uint16), 4, "UINT16", "U16"),
    "uint32": _Row(np.dtype(np.uint32), 12, "UINT32", "U32"),
    "uint64": _Row(np.dtype(np.uint64), 13, "UINT64", "U64"),
    "float16": _Row(np.dtype(np.float16), 10, "FP16", "F16"),
    "float32": _Row(np.dtype(np.float32), 1, "FP32", "F32"),
    "float64": _Row(np.dtype(np.float64), 11, "FP64", "F64"),
    "bfloat16": _Row(None, 16, "BF16", "BF16"),
    "float8_e4m3fn": _Row(None, 17, "FP8_E4M3FN", "F8_E4M3"),
    "float8_e4m3fnuz": _Row(None, 18, "FP8_E4M3FNUZ", None),
    "float8_e5m2": _Row(None, 19, "FP8_E5M2", "F8_E5M2"),
    "float8_e5m2fnuz": _Row(None, 20, "FP8_E5M2FNUZ", None),
    "string": _Row(np.dtype(np.object_), 8, "BYTES", None),
}


class DType(Enum):
    """The type of a tensor's elements.

    Members are named as in `max.dtype.DType`; the value is the name, so it can stand in JSON. `string` is the one
    addition: a tensor of byte strings, BYTES on the wire, an object array of `bytes` in numpy.
    """

    bool = "bool"
    int8 = "int8"
    int16 = "int16"
    int32 = "int32"
    int64 = "int64"
    uint8 = "uint8"
    uint16 = "uint16"
    uint32 = "uint32"
    uint64 = "uint64"
    float16 = "float16"
    float32 = "float32"
    float64 = "float64"
    bfloat16 = "bfloat16"
    float8_e4m3fn = "float8_e4m3fn"
    float8_e4m3fnuz = "float8_e4m3fnuz"
    float8_e5m2 = "float8_e5m2"
    float8_e5m2fnuz = "float8_e5m2fnuz"
    string = "string"

    _row: _Row
    """Set below; lies on the member because every request asks for it."""

    def __repr__(self) -> str:
        return f"DType.{self.name}"

    @classmethod
    def from_numpy(cls, dtype: npt.DTypeLike) -> DType:
        """The DType of a numpy dtype of any byte order.

        Raises:
            TypeError: numpy's dtype has no counterpart (complex, datetime, structured).
        """
        if isinstance(dtype, np.dtype) and (found := _FROM_NUMPY.get(dtype)) is not None:
            return found
        # numpy knows the names of ml_dtypes only once that is imported.
        others = _from_others() if isinstance(dtype, str) else {}
        given = np.dtype(dtype)
        if given.kind in "SU":
            return cls.string
        native = given.newbyteorder("=")
        try:
            return _FROM_NUMPY.get(native) or (others or _from_others())[native]
        except KeyError:
            raise TypeError(f"numpy dtype {given} has no tensor type; use one of {', '.join(_TABLE)}") from None

    @classmethod
    def from_onnx(cls, number: int) -> DType:
        """The DType of an ONNX `TensorProto.DataType` number; ValueError if there is none."""
        return _lookup(_FROM_ONNX, number, "ONNX element type")

    @classmethod
    def from_wire(cls, datatype: str) -> DType:
        """The DType of an Open Inference Protocol datatype such as "FP32"; ValueError if there is none."""
        return _lookup(_FROM_WIRE, datatype, "datatype")

    @classmethod
    def from_safetensors(cls, name: str) -> DType:
        """The DType of a safetensors dtype such as "BF16"; ValueError if there is none."""
        return _lookup(_FROM_SAFETENSORS, name, "safetensors dtype")

    def to_numpy(self) -> np.dtype[np.generic]:
        """The numpy dtype, native byte order (ml_dtypes for bfloat16 and the 8-bit floats)."""
        numpy = self._row.numpy
        return _others()[self] if numpy is None else numpy

    @property
    def onnx(self) -> int:
        """The `TensorProto.DataType` number."""
        return self._row.onnx

    @property
    def wire(self) -> str:
        """The Open Inference Protocol's datatype."""
        return self._row.wire

    @property
    def safetensors(self) -> str | None:
        """The safetensors dtype, None where the format has none."""
        return self._row.safetensors

    @property
    def size_in_bytes(self) -> int:
        """Bytes of one element.

        Raises:
            TypeError: for `string`, whose elements differ in size.
        """
        if self is DType.string:
            raise TypeError("DType.string has no fixed element size")
        return self.to_numpy().itemsize

    @property
    def align(self) -> int:
        """The natural alignment of one element in bytes, equal to its size."""
        return self.size_in_bytes

    def is_float(self) -> builtins.bool:
        """Whether elements are floating point numbers of any width."""
        return "float" in self.name

    def is_integral(self) -> builtins.bool:
        """Whether elements are whole numbers; bool is not."""
        return "int" in self.name

    def is_signed_integral(self) -> builtins.bool:
        """Whether elements are whole numbers that may be negative."""
        return self.name.startswith("int")

    def is_unsigned_integral(self) -> builtins.bool:
        """Whether elements are whole numbers that are never negative."""
        return self.name.startswith("uint")


def _lookup(table: dict[_K, DType], key: _K, kind: str) -> DType:
    try:
        return table[key]
    except (KeyError, TypeError):
        raise ValueError(f"unknown {kind} {key!r}; known are {', '.join(map(str, table))}") from None


@cache
def _others() -> dict[DType, np.dtype[np.generic]]:
    """The types that numpy lacks. To import ml_dtypes can take seconds (0.7.0), and few need it."""
    import ml_dtypes

    return {DType[name]: np.dtype(getattr(ml_dtypes, name)) for name, row in _TABLE.items() if row.numpy is None}


@cache
def _from_others() -> dict[np.dtype[np.generic], DType]:
    return {numpy: dtype for dtype, numpy in _others().items()}


for _name, _row in _TABLE.items():
    DType[_name]._row = _row

_FROM_NUMPY = {row.numpy: DType[name] for name, row in _TABLE.items() if row.numpy is not None}
_FROM_ONNX = {row.onnx: DType[name] for name, row in _TABLE.items()}
_FROM_WIRE = {row.wire: DType[name] for name, row in _TABLE.items()}
_FROM_SAFETENSORS = {row.safetensors: DType[name] for name, row in _TABLE.items() if row.safetensors}
