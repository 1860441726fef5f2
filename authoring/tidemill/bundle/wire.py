"""Protobuf's fields, read without protobuf: enough to see the shape of an ONNX file before anything parses it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, TypeVar

from tidemill.errors import InvalidBundle

__all__ = ["fields", "has_functions"]

_FUNCTIONS = 25  # ModelProto.functions
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_CONTINUED = 0x80  # a byte of a number that is followed by another
_FIXED_SIZES = {_FIXED64: 8, _FIXED32: 4}

_Buffer = TypeVar("_Buffer", bytes, memoryview)


def fields(message: _Buffer) -> Iterator[tuple[int, _Buffer]]:
    """The fields of a message that hold text, bytes or messages: their numbers and contents.

    Most numbers have one byte, so that is looked at before a function is called for the others.

    Raises:
        InvalidBundle: It is no message.
    """
    place, end = 0, len(message)
    while place < end:
        key = message[place]
        place += 1
        if key >= _CONTINUED:
            key, place = _number(message, place - 1)
        kind = key & 7
        if kind == _BYTES:
            length = message[place] if place < end else _CONTINUED
            place += 1
            if length >= _CONTINUED:
                length, place = _number(message, place - 1)
            begin, place = place, place + length
            if place > end:
                raise InvalidBundle("the graph is no ONNX model: it ends in the middle")
            yield key >> 3, message[begin:place]
        elif kind == _VARINT:
            _, place = _number(message, place)
        elif kind in _FIXED_SIZES:
            place += _FIXED_SIZES[kind]
        else:
            raise InvalidBundle(f"the graph is no ONNX model: field {key >> 3} has wire type {kind}")


def has_functions(path: Path) -> bool:
    """Whether an ONNX file holds functions, or is none; only the outermost fields are looked at."""
    with path.open("rb") as file:
        while (key := _next_number(file)) is not None:
            if key >> 3 == _FUNCTIONS or key & 7 not in (_VARINT, _BYTES):
                return True
            value = _next_number(file) or 0
            if key & 7 == _BYTES:
                file.seek(value, 1)
    return False


def _number(message: bytes | memoryview, place: int) -> tuple[int, int]:
    """The number at a place, and the place after it."""
    number, shift = 0, 0
    while place < len(message) and shift < 64:
        byte = message[place]
        place += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, place
        shift += 7
    raise InvalidBundle("the graph is no ONNX model: a number has no end")


def _next_number(file: BinaryIO) -> int | None:
    """The next number of a file; None at its end."""
    number, shift = 0, 0
    while (byte := file.read(1)) and shift < 64:
        number |= (byte[0] & 0x7F) << shift
        if byte[0] < 0x80:
            return number
        shift += 7
    return None
