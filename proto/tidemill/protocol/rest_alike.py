"""REST requests that differ in nothing but their numbers, as binary data or as one list in the JSON; knows no HTTP."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np
import orjson

from tidemill.dtype import DType
from tidemill.protocol import rest
from tidemill.protocol.alike import (
    Bodies,
    Place,
    first_of,
    is_ordinary,
    is_plain,
    joined,
    places_of,
    shapes_of,
    slices_of,
)
from tidemill.protocol.bounded import Bounded
from tidemill.protocol.types import Array, InferRequest, InferResponse

__all__ = ["BinaryAlike", "JsonAlike", "json_pieces", "learn_binary", "learn_json"]

_SHAPES = 16
_ROW_ENDS = slice(len("[["), -len("]]"))
_NUMBERS = {np.dtype(kind): frozenset({int}) for kind in ("int32", "int64")} | {
    np.dtype(kind): frozenset({int, float}) for kind in ("float32", "float64")
}


class BinaryAlike:
    """Their numbers lie at the same places of the message; implements `Alike`."""

    def __init__(self, request: InferRequest, places: Sequence[Place]) -> None:
        self.request = request
        self._places = places
        self._heads: Bounded[object, bytes] = Bounded(_SHAPES)

    def read(self, messages: Sequence[bytes]) -> dict[str, Array] | None:
        """The inputs of all, whatever their numbers."""
        return joined(self._places, messages)

    def write(self, response: InferResponse, count: int) -> Bodies | None:
        """Every body is the same JSON and its own slices of the outputs."""
        outputs = response.outputs.values()
        if not all(map(is_plain, outputs)):
            return None
        head = self._head(response, count)
        parts = [slices_of(array, count) for array in outputs]
        if len(parts) == 1:
            return len(head), [head + part for part in parts[0]]
        return len(head), [b"".join((head, *own)) for own in zip(*parts, strict=True)]

    def _head(self, response: InferResponse, count: int) -> bytes:
        key = response.model_version, count, shapes_of(response.outputs)
        head = self._heads.get(key)
        if head is None:
            _, buffers = rest.format_infer_response(first_of(response, count), self.request)
            head = bytes(buffers[0])
            self._heads.put(key, head)
        return head


class JsonAlike:
    """Their numbers are the one list that stands between the same texts; implements `Alike`."""

    def __init__(self, request: InferRequest, start: int, suffix: bytes) -> None:
        """Note what all have in common.

        Args:
            request: The first of them; its one input is of a dtype that is read here.
            start: Where in the message the list begins.
            suffix: What stands behind the list.
        """
        self.request = request
        self._start, self._suffix, self._end = start, suffix, -len(suffix)
        ((self._name, array),) = request.inputs.items()
        self._dtype, self._shape, self._size = array.dtype, array.shape, array.size
        self._pieces: Bounded[object, list[bytes]] = Bounded(_SHAPES)

    def read(self, messages: Sequence[bytes]) -> dict[str, Array] | None:
        """All lists, parsed in one go.

        No text can pass for two: each begins and ends with a bracket of its own, so it is one list at least; there are
        as many lists as texts; and none of them holds a string or another list.
        """
        texts = [message[self._start : self._end] for message in messages if message.endswith(self._suffix)]
        if len(texts) < len(messages) or not all(text[:1] == b"[" and text[-1:] == b"]" for text in texts):
            return None
        array = _numbers(b"[%b]" % b",".join(texts), len(texts), self._size, self._dtype)
        return None if array is None else {self._name: array.reshape(-1, *self._shape[1:])}

    def write(self, response: InferResponse, count: int) -> Bodies | None:
        """Every body is the same texts around its own numbers."""
        outputs = response.outputs.values()
        if not outputs or not all(map(is_plain, outputs)):
            return None
        first, *pieces = self._around(response, count)
        bodies = [first] * count
        for array, piece in zip(outputs, pieces, strict=True):
            bodies = [b"%b%b%b" % (body, row, piece) for body, row in zip(bodies, _rows(array, count), strict=True)]
        return None, bodies

    def _around(self, response: InferResponse, count: int) -> list[bytes]:
        key = response.model_version, count, shapes_of(response.outputs)
        pieces = self._pieces.get(key)
        if pieces is None:
            before, *rest_of_all = json_pieces(first_of(response, count))
            # The brackets of each list belong to the texts around it.
            pieces = [before + b"[", *(b"]" + piece + b"[" for piece in rest_of_all[:-1]), b"]" + rest_of_all[-1]]
            self._pieces.put(key, pieces)
        return pieces


def learn_binary(request: InferRequest, start: int, size: int) -> BinaryAlike | None:
    """The kind of a request whose tensors are `size` bytes of its message, from `start` on; None if it is odd."""
    places = places_of(request, start, size) if is_ordinary(request) and _wants(request) == {True} else None
    return BinaryAlike(request, places) if places else None


def learn_json(request: InferRequest, message: bytes, begin: int, start: int) -> JsonAlike | None:
    """The kind of a request that is all JSON and whose data is one flat list of numbers; None if it is odd.

    Args:
        request: The request.
        message: The bytes that it came in.
        begin: Where in them the JSON begins.
        start: Where the list does, if it is one.
    """
    end = message.find(b"]", start) + 1
    if not end or len(request.inputs) != 1 or not is_ordinary(request) or _wants(request) != {False}:
        return None
    (array,) = request.inputs.values()
    if array.dtype not in _NUMBERS or not array.ndim or not array.size:
        return None
    # JSON is free of context: where this list is the data, any other list would be as well.
    try:
        document = orjson.loads(message[begin:start] + b'["here"]' + message[end:])
    except orjson.JSONDecodeError:
        return None
    is_data = document["inputs"][0].get("data") == ["here"]
    return JsonAlike(request, start, message[end:]) if is_data else None


def json_pieces(response: InferResponse) -> list[bytes]:
    """The document around the values of its outputs: one text before each, and one behind all."""
    names = {"model_name": response.model_name, "model_version": response.model_version}
    before, pieces = orjson.dumps(names)[:-1] + b',"outputs":[', []
    for name, array in response.outputs.items():
        described = {"name": name, "datatype": DType.from_numpy(array.dtype).wire, "shape": list(array.shape)}
        pieces.append(before + orjson.dumps(described)[:-1] + b',"data":')
        before = b"},"
    return [*pieces, b"}]}" if pieces else before + b"]}"]


def _wants(request: InferRequest) -> set[bool]:
    """Whether outputs are wanted as binary data."""
    default = bool(request.parameters.get("binary_data_output", False))
    return {output.binary for output in request.outputs} or {default}


def _numbers(text: bytes, count: int, size: int, dtype: np.dtype[Any]) -> Array | None:
    """So many lists of so many numbers; None if they are something else, or do not fit."""
    try:
        lists = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    if len(lists) != count or set(map(type, lists)) != {list} or set(map(len, lists)) != {size}:
        return None
    if not set(map(type, chain.from_iterable(lists))) <= _NUMBERS[dtype]:
        return None
    return _array(lists, dtype)


def _array(lists: list[list[Any]], dtype: np.dtype[Any]) -> Array | None:
    try:
        with np.errstate(over="ignore"):
            array: Array = np.array(lists, dtype)
    except OverflowError:
        return None
    return array if dtype.kind == "i" or np.isfinite(array).all() else None


def _rows(array: Array, count: int) -> list[bytes]:
    """The numbers of each of `count` answers, without brackets around them."""
    text = orjson.dumps(array.reshape(count, -1), option=orjson.OPT_SERIALIZE_NUMPY)
    return text[_ROW_ENDS].split(b"],[")
