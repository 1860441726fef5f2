"""The generate extension: one flat JSON object of inputs and parameters, answered by another; knows no transport."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import orjson

from tidemill.errors import InvalidArgument
from tidemill.protocol.json_data import from_json, to_json
from tidemill.protocol.parameters import check_parameters
from tidemill.protocol.types import InferRequest, InferResponse, ModelMetadata, TensorSpec

__all__ = ["format_generated", "json_object", "parse_generate"]

_OWN = ("id", "parameters")


def parse_generate(
    body: bytes | bytearray | memoryview, model: ModelMetadata, *, model_version: str = ""
) -> InferRequest:
    """Read the body of /generate and /generate_stream.

    A key (at the top or in `parameters`) that is the name of an input becomes its tensor: a scalar, or a list whose
    values fill the declared shape from the right. Every other key is a request parameter.

    Raises:
        InvalidArgument: The body is no JSON object, or a value does not fit its input or is no parameter.
    """
    document = json_object(body)
    identifier = document.get("id", "")
    if not isinstance(identifier, str):
        raise InvalidArgument(f"unable to parse 'id': {identifier!r} is not a string")
    nested = document.get("parameters") or {}
    if not isinstance(nested, dict):
        raise InvalidArgument("'parameters' is not an object")
    inputs = {spec.name: spec for spec in model.inputs}
    fields = {key: value for key, value in document.items() if key not in _OWN or key in inputs} | nested
    return InferRequest(
        model_name=model.name,
        model_version=model_version,
        id=identifier,
        inputs={key: _tensor(inputs[key], value) for key, value in fields.items() if key in inputs},
        parameters=check_parameters({key: value for key, value in fields.items() if key not in inputs}),
    )


def json_object(body: bytes | bytearray | memoryview) -> dict[str, Any]:
    """Read a JSON object; InvalidArgument if the body is none."""
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise InvalidArgument(f"the body is not JSON: {error}") from None
    if not isinstance(document, dict):
        raise InvalidArgument("the body's JSON is not an object")
    return document


def format_generated(response: InferResponse) -> bytes:
    """Write the answer: each output under its name, a bare value if it has one element, else a flat list.

    The answer's parameters, if it has any, stand together under `parameters`.

    Raises:
        InvalidArgument: An output holds bytes that are not UTF-8 and so has no JSON form.
    """
    document: dict[str, Any] = {"model_name": response.model_name, "model_version": response.model_version}
    if response.id:
        document["id"] = response.id
    for name, array in response.outputs.items():
        flat = array.reshape(() if array.size == 1 else -1)
        document[name] = to_json(flat, nested=True, name=f"output {name!r}")
    if response.parameters:
        document["parameters"] = dict(response.parameters)
    return orjson.dumps(document)


def _tensor(spec: TensorSpec, value: object) -> Any:
    values = value if isinstance(value, list) else [value]
    shape = _filled(spec, values)
    return from_json(values, spec.dtype, shape, name=f"input {spec.name!r}")


def _filled(spec: TensorSpec, values: Sequence[object]) -> list[int]:
    """The declared shape with its free dims filled from the right: the last takes the rest, the others are 1."""
    shape = list(spec.wire_shape)
    fixed = math.prod(dim for dim in shape if dim >= 0)
    free = [axis for axis, dim in enumerate(shape) if dim < 0]
    for axis in free[:-1]:
        shape[axis] = 1
    if free:
        shape[free[-1]] = len(values) // fixed if fixed else 0
    return shape
