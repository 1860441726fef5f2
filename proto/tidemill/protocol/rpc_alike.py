"""Inference messages that differ in nothing but their raw tensors, read and written without protobuf; knows no gRPC.

A message of raw tensors is its description, then one entry a tensor: a tag, a length, the bytes. Whose description is
known, byte for byte, needs to be read no further. Any other message is declined.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence

from tidemill.protocol import messages
from tidemill.protocol.alike import Bodies, Place, first_of, is_ordinary, is_plain, joined, shapes_of, slices_of
from tidemill.protocol.bounded import Bounded
from tidemill.protocol.rpc import request_from_message, response_to_message
from tidemill.protocol.types import Array, InferRequest, InferResponse

__all__ = ["RpcAlike", "learn_rpc", "varint"]

_Request = messages.message_class("ModelInferRequest")
_RAW_INPUT, _RAW_OUTPUT = (
    bytes([messages.message_class(name).DESCRIPTOR.fields_by_name[field].number << 3 | 2])
    for name, field in (("ModelInferRequest", "raw_input_contents"), ("ModelInferResponse", "raw_output_contents"))
)
_SHAPES = 16


class RpcAlike:
    """Messages with the same description and tensors of the same sizes; implements `Alike`.

    Attributes:
        prefix: What they begin with, up to the first tensor's bytes.
        size: The length of each.
    """

    def __init__(self, request: InferRequest, message: bytes, places: Sequence[Place]) -> None:
        """Note what all have in common.

        Args:
            request: The first of them.
            message: Its bytes.
            places: Where in them its tensors lie.
        """
        self.request = request
        self.prefix = message[: places[0].start]
        self.size = len(message)
        self._places = places
        self._between = [(a.end, b.start, message[a.end : b.start]) for a, b in itertools.pairwise(places)]
        self._heads: Bounded[object, list[bytes]] = Bounded(_SHAPES)

    def read(self, messages: Sequence[bytes]) -> dict[str, Array] | None:
        """The inputs of all; messages begin with `prefix` and have `size` bytes."""
        for start, end, expected in self._between:
            if any(message[start:end] != expected for message in messages):
                return None
        return joined(self._places, messages)

    def write(self, response: InferResponse, count: int) -> Bodies | None:
        """Every body is the same description, and a tag, a length and its own slice of each output."""
        outputs = response.outputs.values()
        if not outputs or not all(map(is_plain, outputs)):
            return None
        first, *heads = self._described(response, count)
        parts = [slices_of(array, count) for array in outputs]
        bodies = [first + part for part in parts[0]]
        for head, more in zip(heads, parts[1:], strict=True):
            bodies = [b"".join((body, head, part)) for body, part in zip(bodies, more, strict=True)]
        return None, bodies

    def _described(self, response: InferResponse, count: int) -> list[bytes]:
        """What stands before the bytes of each output."""
        key = response.model_version, count, shapes_of(response.outputs)
        heads = self._heads.get(key)
        if heads is None:
            message = response_to_message(first_of(response, count))
            heads = [_RAW_OUTPUT + varint(len(raw)) for raw in message.raw_output_contents]
            del message.raw_output_contents[:]
            heads[0] = message.SerializeToString() + heads[0]
            self._heads.put(key, heads)
        return heads


def learn_rpc(message: bytes) -> RpcAlike | None:
    """The kind of a ModelInferRequest; None if it is odd or its tensors are not its last fields.

    Raises:
        ValueError: It is no such message.
        TidemillError: It contradicts the protocol.
    """
    parsed = _Request.FromString(message)
    if not parsed.raw_input_contents or len(parsed.raw_input_contents) != len(parsed.inputs):
        return None
    request = request_from_message(parsed)
    places = _places(request.inputs, parsed.raw_input_contents, message)
    return RpcAlike(request, message, places) if places and is_ordinary(request) else None


def varint(value: int) -> bytes:
    """A whole number of 0 or more as protobuf writes lengths: 7 bits a byte, the lowest first."""
    parts = bytearray()
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    parts.append(value)
    return bytes(parts)


def _places(inputs: Mapping[str, Array], raw: Iterable[bytes], message: bytes) -> list[Place]:
    """Where the tensors lie, if they end the message as they are written everywhere; else nothing."""
    entries = [(_RAW_INPUT + varint(len(data)), data) for data in raw]
    start = len(message) - sum(len(head) + len(data) for head, data in entries)
    if message[start:] != b"".join(part for entry in entries for part in entry):
        return []
    places = []
    for (name, array), (head, data) in zip(inputs.items(), entries, strict=True):
        start += len(head)
        if not is_plain(array) or not array.ndim:
            return []
        places.append(Place(name, array.dtype, array.shape, start, start + len(data)))
        start += len(data)
    return places
