"""Bodies that are nothing but one tensor's bytes; knows neither JSON nor content types."""

from __future__ import annotations

import math

import numpy as np

from tidemill.dtype import DType
from tidemill.errors import InvalidArgument
from tidemill.protocol.tensors import from_bytes
from tidemill.protocol.types import InferRequest, ModelMetadata, TensorSpec

__all__ = ["only_input", "parse_raw_infer"]


def only_input(model: ModelMetadata) -> TensorSpec:
    """The input of a model that has one.

    Raises:
        InvalidArgument: It has several, or none.
    """
    if len(model.inputs) != 1:
        names = ", ".join(repr(spec.name) for spec in model.inputs) or "none"
        raise InvalidArgument(
            f"a body that names no input needs a model with exactly one; model {model.name!r} has {names}"
        )
    return model.inputs[0]


def parse_raw_infer(
    body: bytes | bytearray | memoryview, model: ModelMetadata, *, model_version: str = ""
) -> InferRequest:
    """Read a request whose body is nothing but the bytes of the model's only input (header length 0).

    One dim may be free; its size follows from the number of bytes. If the first dim is free besides another one, it
    is taken as a batch of 1. A BYTES input takes the whole body as its one element. All outputs are asked for in
    binary.

    Raises:
        InvalidArgument: The model has several inputs or too many free dims, or the bytes do not fill its shape.
    """
    spec = only_input(model)
    shape = _raw_shape(spec, len(body))
    array = np.empty(shape, dtype=np.object_)
    if spec.dtype is DType.string:
        array.fill(bytes(body))
    else:
        array = from_bytes(body, spec.dtype, shape, name=f"input {spec.name!r}")
    return InferRequest(
        model_name=model.name,
        model_version=model_version,
        inputs={spec.name: array},
        parameters={"binary_data_output": True},
    )


def _raw_shape(spec: TensorSpec, size: int) -> list[int]:
    shape = list(spec.wire_shape)
    free = [axis for axis, dim in enumerate(shape) if dim < 0]
    if len(free) > 1 and free[0] == 0:
        shape[free.pop(0)] = 1
    if spec.dtype is DType.string:
        shape = [1 if dim < 0 else dim for dim in shape]
    elif len(free) == 1:
        step = math.prod(dim for dim in shape if dim >= 0) * spec.dtype.size_in_bytes
        shape[free[0]] = size // step if step else 0
    if len(free) > 1 or (spec.dtype is DType.string and math.prod(shape) != 1):
        raise InvalidArgument(f"input {spec} has more free dims than a raw request can fill; send a JSON header")
    return shape
