"""The OpenAPI document: the framework's own, completed by what each served model takes and answers."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from typing import Any

from tidemill.dtype import DType
from tidemill.errors import TidemillError
from tidemill.protocol.types import ModelMetadata, TensorSpec
from tidemill.serving.service import Service

__all__ = ["describe"]

Schema = dict[str, Any]

_ERROR = {"$ref": "#/components/schemas/Error"}
_FAILED = {"description": "Refused or failed.", "content": {"application/json": {"schema": _ERROR}}}
_ERROR_SCHEMA = {"type": "object", "required": ["error"], "properties": {"error": {"type": "string"}}}
_PARAMETERS = {
    "type": "object",
    "additionalProperties": {"anyOf": [{"type": kind} for kind in ("string", "number", "boolean")]},
}


def describe(document: Schema, service: Service) -> Schema:
    """Complete a document.

    Args:
        document: What the framework made of the management routes; is not changed.
        service: Whose ready models are described.
    """
    described = deepcopy(document)
    described.setdefault("components", {}).setdefault("schemas", {})["Error"] = _ERROR_SCHEMA
    for path in described["paths"].values():
        for operation in path.values():
            # The framework takes for granted that it checks bodies itself, and answers 422 in its own words.
            operation["responses"] = {"200": {"description": "Done."}, "default": _FAILED}
    for name in service.model_names():
        try:
            metadata = service.model_metadata(name)
        except TidemillError:
            continue
        described["paths"] |= _paths(metadata)
    return described


def _paths(model: ModelMetadata) -> dict[str, Schema]:
    base = f"/v2/models/{model.name}"
    return {
        f"{base}/infer": _operation(model, "infer", "Run it.", _infer_request(model), _infer_response(model)),
        f"{base}/generate": _operation(
            model, "generate", "Run it on plain values.", _generate_request(model), _generate_response(model)
        ),
    }


def _operation(model: ModelMetadata, name: str, summary: str, request: Schema, response: Schema) -> Schema:
    return {
        "post": {
            "tags": [model.name],
            "summary": summary,
            "operationId": f"{name} {model.name}",
            "requestBody": {"required": True, "content": {"application/json": {"schema": request}}},
            "responses": {
                "200": {"description": "The outputs.", "content": {"application/json": {"schema": response}}},
                "default": _FAILED,
            },
        }
    }


def _infer_request(model: ModelMetadata) -> Schema:
    count = len(model.inputs)
    return {
        "type": "object",
        "required": ["inputs"],
        "properties": {
            "id": {"type": "string"},
            "parameters": _PARAMETERS,
            "inputs": {
                "type": "array",
                "minItems": count,
                "maxItems": count,
                "items": _any_of([_tensor(spec, data=True) for spec in model.inputs]),
            },
            "outputs": {
                "type": "array",
                "maxItems": len(model.outputs),
                "items": {
                    "type": "object",
                    "required": ["name"],
                    "properties": {"name": {"enum": [spec.name for spec in model.outputs]}},
                },
            },
        },
        "example": {"inputs": [_example(spec) for spec in model.inputs]},
    }


def _infer_response(model: ModelMetadata) -> Schema:
    return {
        "type": "object",
        "required": ["model_name", "model_version", "outputs"],
        "properties": {
            "id": {"type": "string"},
            "model_name": {"const": model.name},
            "model_version": {"type": "string"},
            "parameters": _PARAMETERS,
            "outputs": {"type": "array", "items": _any_of([_tensor(spec, data=True) for spec in model.outputs])},
        },
    }


def _generate_request(model: ModelMetadata) -> Schema:
    return {
        "type": "object",
        "required": [spec.name for spec in model.inputs],
        "properties": {spec.name: _one_or_many(spec) for spec in model.inputs},
    }


def _generate_response(model: ModelMetadata) -> Schema:
    outputs = {spec.name: _one_or_many(spec) for spec in model.outputs}
    return {
        "type": "object",
        "required": ["model_name", "model_version", *outputs],
        "properties": {"model_name": {"const": model.name}, "model_version": {"type": "string"}, **outputs},
    }


def _tensor(spec: TensorSpec, *, data: bool) -> Schema:
    shape = {
        "type": "array",
        "minItems": len(spec.shape),
        "maxItems": len(spec.shape),
        **({"prefixItems": [_dim(dim) for dim in spec.shape]} if spec.shape else {}),
        "items": {"type": "integer", "minimum": 0},
        "description": f"{spec}",
    }
    return {
        "type": "object",
        "required": ["name", "datatype", "shape", *(["data"] if data else [])],
        "properties": {
            "name": {"const": spec.name},
            "datatype": {"const": spec.dtype.wire},
            "shape": shape,
            "data": {"type": "array", "items": _element(spec.dtype)},
        },
    }


def _dim(dim: int | str) -> Schema:
    if isinstance(dim, int):
        return {"const": dim}
    return {"type": "integer", "minimum": 0, **({"title": dim} if dim else {})}


def _element(dtype: DType) -> Schema:
    if dtype is DType.string:
        return {"type": "string"}
    if dtype is DType.bool:
        return {"type": "boolean"}
    if dtype.is_integral():
        bits = 8 * dtype.size_in_bytes
        low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if dtype.is_signed_integral() else (0, 2**bits - 1)
        return {"type": "integer", "minimum": low, "maximum": high}
    return {"type": ["number", "null"]}


def _one_or_many(spec: TensorSpec) -> Schema:
    element = _element(spec.dtype)
    return {"anyOf": [element, {"type": "array", "items": element}], "description": str(spec)}


def _any_of(schemas: Sequence[Schema]) -> Schema:
    return schemas[0] if len(schemas) == 1 else {"anyOf": list(schemas)} if schemas else {}


def _example(spec: TensorSpec) -> Schema:
    shape = [dim if isinstance(dim, int) else 1 for dim in spec.shape]
    count = 1
    for dim in shape:
        count *= dim
    value: Any = "text" if spec.dtype is DType.string else spec.dtype is DType.bool or 0
    return {"name": spec.name, "datatype": spec.dtype.wire, "shape": shape, "data": [value] * min(count, 64)}
