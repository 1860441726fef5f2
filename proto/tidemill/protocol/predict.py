"""KServe's first protocol, `:predict`: rows of JSON values in and out; knows no transport.

{"instances": [...]} holds one entry a row: the row's value, or an object of values by input name. {"inputs": ...} holds
whole tensors instead, by input name unless there is only one. Answers are {"predictions": ...} or {"outputs": ...}.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from tidemill.errors import InvalidArgument, UnprocessableInput
from tidemill.protocol.generate import json_object
from tidemill.protocol.json_data import from_json, to_json
from tidemill.protocol.raw import only_input
from tidemill.protocol.types import Array, InferRequest, InferResponse, ModelMetadata, TensorSpec

__all__ = ["format_predictions", "parse_predict"]

_MAX_RANK = 32


def parse_predict(
    body: bytes | bytearray | memoryview, model: ModelMetadata, *, model_version: str = ""
) -> tuple[InferRequest, bool]:
    """Read the body of `:predict`.

    Returns:
        The request, and whether it came as rows ("instances") and is to be answered by rows.

    Raises:
        InvalidArgument: The body has neither or both forms, or a value does not fit its input.
    """
    document = json_object(body)
    forms = [form for form in ("instances", "inputs") if form in document]
    if len(forms) != 1:
        raise InvalidArgument(f"the body has {' and '.join(forms) or 'no data'}; give one of instances and inputs")
    by_rows = forms == ["instances"]
    columns = _columns_of_rows(document["instances"], model) if by_rows else _columns(document["inputs"], model)
    specs = {spec.name: spec for spec in model.inputs}
    unknown = [name for name in columns if name not in specs]
    if unknown:
        raise InvalidArgument(f"unknown input {unknown[0]!r}; the model has {', '.join(map(repr, specs))}")
    inputs = {name: _tensor(specs[name], value) for name, value in columns.items()}
    return InferRequest(model_name=model.name, model_version=model_version, inputs=inputs), by_rows


def format_predictions(response: InferResponse, *, by_rows: bool) -> bytes:
    """Write the answer: nested lists, by output name if there are several.

    Raises:
        UnprocessableInput: Rows are asked for, and the outputs have none or unequal numbers of them.
        InvalidArgument: An output holds bytes that are not UTF-8 and so has no JSON form.
    """
    outputs = response.outputs
    single = next(iter(outputs)) if len(outputs) == 1 else None
    if single is not None:
        answer: Any = to_json(outputs[single], nested=True, name=f"output {single!r}")
    elif by_rows:
        answer = _rows(outputs)
    else:
        answer = {name: to_json(array, nested=True, name=f"output {name!r}") for name, array in outputs.items()}
    return orjson.dumps({"predictions" if by_rows else "outputs": answer})


def _columns_of_rows(instances: object, model: ModelMetadata) -> Mapping[str, Any]:
    if not isinstance(instances, list):
        raise InvalidArgument("'instances' is not a list of rows")
    named = [isinstance(row, dict) for row in instances]
    if not any(named):
        return {only_input(model).name: instances}
    names = instances[0].keys() if named[0] else ()
    uneven = next((i for i, row in enumerate(instances) if not named[i] or row.keys() != names), None)
    if uneven is not None:
        raise InvalidArgument(f"row {uneven} of 'instances' names other inputs than row 0")
    return {name: [row[name] for row in instances] for name in names}


def _columns(inputs: object, model: ModelMetadata) -> Mapping[str, Any]:
    return inputs if isinstance(inputs, dict) else {only_input(model).name: inputs}


def _tensor(spec: TensorSpec, value: object) -> Array:
    return from_json(value, spec.dtype, _shape_of(value, f"input {spec.name!r}"), name=f"input {spec.name!r}")


def _shape_of(value: object, name: str) -> list[int]:
    """The shape of nested lists; every list of one depth must be as long as the others."""
    shape: list[int] = []
    level: list[Any] = [value]
    while level and all(isinstance(item, list) for item in level) and len(shape) <= _MAX_RANK:
        lengths = {len(item) for item in level}
        if len(lengths) > 1:
            raise InvalidArgument(f"{name}: lists of one depth have lengths {sorted(lengths)}; they must be equal")
        shape.append(lengths.pop())
        level = [element for item in level for element in item]
    return shape


def _rows(outputs: Mapping[str, Array]) -> list[dict[str, Any]]:
    counts = {len(array) if array.ndim else None for array in outputs.values()}
    count = counts.pop()
    if counts or count is None:
        raise UnprocessableInput("the outputs do not have one row an instance; send 'inputs' instead of 'instances'")
    return [
        {name: to_json(array[row, ...], nested=True, name=f"output {name!r}") for name, array in outputs.items()}
        for row in range(count)
    ]
