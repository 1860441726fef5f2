"""What `rest` reads and writes, for callers that repeat themselves: the repeated part is remembered; knows no HTTP.

A caller's JSON before binary tensors hardly changes from request to request, nor do the names and shapes of a model's
answers. Both are looked up by what they depend on; whatever is not plain goes through `rest`, which also words every
error, so that nothing but the time differs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import orjson

from tidemill.protocol import rest
from tidemill.protocol.alike import is_plain
from tidemill.protocol.bounded import Bounded
from tidemill.protocol.json_data import to_json
from tidemill.protocol.requested import ReadRegion, no_regions
from tidemill.protocol.rest_alike import json_pieces
from tidemill.protocol.types import Array, InferRequest, InferResponse, Parameter, RequestedOutput

__all__ = ["Body", "RestCache"]

Body: TypeAlias = bytes | bytearray | memoryview

_LONGEST = 4096
"""Bytes of a JSON part that are worth remembering."""
_COPY_BELOW = 16 << 10


class _Tensor(NamedTuple):
    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    offset: int


@dataclass(frozen=True, slots=True)
class _Template:
    """What a JSON part says, all of whose tensors follow it as plain numbers."""

    id: str
    outputs: tuple[RequestedOutput, ...]
    parameters: Mapping[str, Parameter]
    tensors: tuple[_Tensor, ...]
    size: int


class RestCache:
    """Reads requests and writes answers; belongs to one server."""

    def __init__(self) -> None:
        self._templates: Bounded[bytes, _Template] = Bounded()
        self._headers: Bounded[object, bytes] = Bounded()
        self._pieces: Bounded[object, list[bytes]] = Bounded()

    def parse_infer(
        self,
        body: Body,
        header_length: int | None,
        *,
        model_name: str = "",
        model_version: str = "",
        read_region: ReadRegion = no_regions,
    ) -> InferRequest:
        """The same as `rest.parse_infer`."""
        if header_length is not None and header_length <= _LONGEST:
            key = bytes(body[:header_length])
            template = self._templates.get(key)
            if template is not None and template.size == len(body) - header_length:
                inputs = _read(template, body, header_length)
                return InferRequest(
                    model_name, inputs, model_version, template.id, template.outputs, template.parameters
                )
        request = rest.parse_infer(
            body, header_length, model_name=model_name, model_version=model_version, read_region=read_region
        )
        if header_length is not None and header_length <= _LONGEST:
            self._remember(key, request, len(body) - header_length)
        return request

    def format_infer_response(
        self, response: InferResponse, request: InferRequest
    ) -> tuple[int | None, Sequence[bytes | memoryview]]:
        """The same as `rest.format_infer_response`."""
        if response.id or response.parameters or response.regions:
            return rest.format_infer_response(response, request)
        default = bool(request.parameters.get("binary_data_output", False))
        binary = {output.name: output.binary for output in request.outputs}
        wanted = {binary.get(name, default) for name in response.outputs}
        if wanted == {False}:
            return None, [self._write_json(response)]
        if wanted == {True} and all(map(is_plain, response.outputs.values())):
            return self._write_binary(response, request)
        return rest.format_infer_response(response, request)

    def _remember(self, key: bytes, request: InferRequest, size: int) -> None:
        tensors, offset = [], 0
        for name, array in request.inputs.items():
            tensors.append(_Tensor(name, array.dtype, array.shape, offset))
            offset += array.nbytes
        # Where values come from elsewhere, from the JSON or from shared memory, fewer bytes follow the JSON.
        if offset == size and all(map(is_plain, request.inputs.values())):
            self._templates.put(key, _Template(request.id, request.outputs, request.parameters, tuple(tensors), size))

    def _write_binary(
        self, response: InferResponse, request: InferRequest
    ) -> tuple[int | None, Sequence[bytes | memoryview]]:
        key = _key(response)
        header = self._headers.get(key)
        if header is None:
            length, buffers = rest.format_infer_response(response, request)
            self._headers.put(key, bytes(buffers[0]))
            return length, buffers
        return len(header), [header, *[array.reshape(-1).view(np.uint8).data for array in response.outputs.values()]]

    def _write_json(self, response: InferResponse) -> bytes:
        key = _key(response)
        pieces = self._pieces.get(key)
        if pieces is None:
            pieces = json_pieces(response)
            self._pieces.put(key, pieces)
        parts = [pieces[0]]
        for piece, (name, array) in zip(pieces[1:], response.outputs.items(), strict=True):
            parts += (orjson.dumps(to_json(array, name=f"output {name!r}")), piece)
        return b"".join(parts)


def _read(template: _Template, body: Body, start: int) -> dict[str, Array]:
    # A fresh piece of memory is aligned; large bodies are viewed where they lie and copied only if they are not.
    data = body[start:] if len(body) < _COPY_BELOW else memoryview(body)[start:]
    inputs: dict[str, Array] = {}
    for name, dtype, shape, offset in template.tensors:
        array: Array = np.ndarray(shape, dtype, data, offset)
        inputs[name] = array if array.flags.aligned else array.copy()
    return inputs


def _key(response: InferResponse) -> object:
    shapes = [(name, array.dtype, array.shape) for name, array in response.outputs.items()]
    return response.model_name, response.model_version, *shapes
