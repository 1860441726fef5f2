"""What servers and models say of themselves, as JSON documents and as messages' fields; knows no transport."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tidemill.dtype import DType
from tidemill.errors import InferenceFailed
from tidemill.protocol.index import ModelIndex
from tidemill.protocol.types import ModelMetadata, ServerMetadata, TensorSpec

__all__ = [
    "format_index",
    "format_model_metadata",
    "format_server_metadata",
    "parse_index",
    "parse_model_metadata",
    "parse_server_metadata",
]


def format_server_metadata(metadata: ServerMetadata) -> dict[str, Any]:
    """The answer to `GET /v2`, and the fields of a `ServerMetadataResponse`."""
    return {"name": metadata.name, "version": metadata.version, "extensions": list(metadata.extensions)}


def parse_server_metadata(document: Mapping[str, Any]) -> ServerMetadata:
    """The inverse of `format_server_metadata`; InferenceFailed if a field is missing."""
    try:
        return ServerMetadata(document["name"], document["version"], tuple(document.get("extensions", ())))
    except (KeyError, TypeError) as error:
        raise InferenceFailed(f"the server's metadata do not follow the protocol: {error!r}") from error


def format_model_metadata(metadata: ModelMetadata) -> dict[str, Any]:
    """The answer to `GET /v2/models/NAME`, and the fields of a `ModelMetadataResponse`; free dims are -1."""
    return {
        "name": metadata.name,
        "versions": list(metadata.versions),
        "platform": metadata.platform,
        "inputs": [_format_spec(spec) for spec in metadata.inputs],
        "outputs": [_format_spec(spec) for spec in metadata.outputs],
    }


def parse_model_metadata(document: Mapping[str, Any]) -> ModelMetadata:
    """The inverse of `format_model_metadata`; a dim of -1 becomes "", since the wire does not tell its symbol.

    Raises:
        InferenceFailed: A field is missing or of the wrong type.
    """
    try:
        return ModelMetadata(
            name=document["name"],
            # KServe writes null where it has nothing to say.
            versions=tuple(document.get("versions") or ()),
            platform=document.get("platform") or "",
            inputs=tuple(map(_parse_spec, document["inputs"])),
            outputs=tuple(map(_parse_spec, document["outputs"])),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise InferenceFailed(f"the model's metadata do not follow the protocol: {error!r}") from error


def format_index(entries: Iterable[ModelIndex]) -> list[dict[str, str]]:
    """The answer to `POST /v2/repository/index`; a model never loaded shows its name only."""
    return [
        {
            key: value
            for key in ("name", "version", "state", "reason")
            if (value := getattr(entry, key)) or (key == "reason" and entry.state)
        }
        for entry in entries
    ]


def parse_index(documents: Iterable[Mapping[str, str]]) -> tuple[ModelIndex, ...]:
    """The inverse of `format_index`; InferenceFailed if an entry is not one."""
    try:
        return tuple(
            ModelIndex(item["name"], *(item.get(key, "") for key in ("version", "state", "reason")))
            for item in documents
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise InferenceFailed(f"the repository's index does not follow the protocol: {error!r}") from error


def _format_spec(spec: TensorSpec) -> dict[str, Any]:
    return {"name": spec.name, "datatype": spec.dtype.wire, "shape": spec.wire_shape}


def _parse_spec(item: Mapping[str, Any]) -> TensorSpec:
    shape = tuple(dim if dim >= 0 else "" for dim in item["shape"])
    return TensorSpec(item["name"], DType.from_wire(item["datatype"]), shape)
