"""Requests that differ in nothing but their numbers, read and answered all at once; knows neither HTTP nor gRPC.

Callers repeat themselves: around the numbers of an input stand the same bytes every time. Who has those bytes needs to
understand them once. Whatever is out of the ordinary is declined here and left to the readers of single requests, which
also word every error, so that nothing but the time differs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np

from tidemill.protocol.types import Array, InferRequest, InferResponse

__all__ = [
    "Alike",
    "Bodies",
    "Place",
    "first_of",
    "is_ordinary",
    "is_plain",
    "joined",
    "places_of",
    "shapes_of",
    "slices_of",
]

Bodies: TypeAlias = tuple[int | None, list[bytes]]
"""The bodies of answers, and the length of their JSON part; None where a body has no two parts."""


class Alike(Protocol):
    """One kind of requests that differ in nothing but their numbers.

    Attributes:
        request: The first of them.
    """

    request: InferRequest

    def read(self, messages: Sequence[bytes]) -> dict[str, Array] | None:
        """The inputs of all, behind each other on axis 0; None if one of them has to be read by itself."""

    def write(self, response: InferResponse, count: int) -> Bodies | None:
        """The bodies of `count` answers whose outputs stand behind each other; None if they have to be written singly.

        Args:
            response: The outputs of all, each with as many rows for every answer, and no parameters.
            count: The number of answers.
        """


class Place(NamedTuple):
    """Where an input lies in a message, and what it is."""

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    start: int
    end: int


def places_of(request: InferRequest, start: int, size: int) -> list[Place] | None:
    """Where the inputs lie in a message that ends with them, from `start` on; None if that cannot be."""
    places, begin = [], start
    for name, array in request.inputs.items():
        if not is_plain(array) or not array.ndim:
            return None
        places.append(Place(name, array.dtype, array.shape, begin, begin + array.nbytes))
        begin += array.nbytes
    # Where values come from elsewhere, from the JSON or from shared memory, there are fewer bytes.
    return places if places and begin == start + size else None


def joined(places: Sequence[Place], messages: Sequence[bytes]) -> dict[str, Array]:
    """The inputs of all messages: the one copy on the way from a message to the model."""
    inputs: dict[str, Array] = {}
    for name, dtype, shape, start, end in places:
        data = b"".join([message[start:end] for message in messages])
        inputs[name] = np.frombuffer(data, dtype).reshape(len(messages) * shape[0], *shape[1:])
    return inputs


def slices_of(array: Array, count: int) -> list[memoryview]:
    """The bytes of `count` answers that stand behind each other."""
    data = array.reshape(-1).view(np.uint8).data
    size = array.nbytes // count
    return [data[start : start + size] for start in range(0, array.nbytes, size)]


def is_ordinary(request: InferRequest) -> bool:
    """Whether its answer holds the model's outputs and nothing else; an id would differ from request to request."""
    plain = not any(output.classification or output.region for output in request.outputs)
    return plain and not request.id and request.parameters.keys() <= {"binary_data_output"}


def is_plain(array: Array) -> bool:
    """Whether the tensor is numbers in the order of the wire, and not empty."""
    return array.dtype.kind in "iuf" and array.dtype.isnative and array.flags.c_contiguous and array.size > 0


def shapes_of(outputs: Mapping[str, Array]) -> object:
    """What the description of outputs depends on."""
    return tuple([(name, array.dtype, array.shape) for name, array in outputs.items()])


def first_of(response: InferResponse, count: int) -> InferResponse:
    """The first of `count` answers whose outputs stand behind each other."""
    if count == 1:
        return response
    outputs = {name: array[: len(array) // count] for name, array in response.outputs.items()}
    return InferResponse(response.model_name, response.model_version, outputs)
