"""The outermost fields of an ONNX file, read without onnx and without reading what is in them."""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO

__all__ = ["has_functions"]

_FUNCTIONS = 25  # ModelProto.functions
_VARINT, _BYTES = 0, 2  # wire types of protobuf; an ONNX model has no others at this level


def has_functions(path: Path) -> bool:
    """Whether an ONNX file holds functions; also if it is not clear that it holds none."""
    with path.open("rb") as file:
        while (key := _varint(file)) is not None:
            if key >> 3 == _FUNCTIONS or key & 7 not in (_VARINT, _BYTES):
                return True
            value = _varint(file) or 0
            if key & 7 == _BYTES:
                file.seek(value, 1)
    return False


def _varint(file: BinaryIO) -> int | None:
    """The next number; None at the end of the file."""
    number, shift = 0, 0
    while byte := file.read(1):
        number |= (byte[0] & 0x7F) << shift
        if byte[0] < 0x80:
            return number
        shift += 7
    return None
