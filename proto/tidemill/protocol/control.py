"""The parameters of loading and unloading a model, the same on both wires; knows no repository."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from tidemill.errors import InvalidArgument

__all__ = ["LoadParameters", "read_load_parameters", "read_unload_parameters"]

_FILE = "file:"


@dataclass(frozen=True, slots=True)
class LoadParameters:
    """What a load brings along.

    Attributes:
        config: The fields of a ModelConfig that stands for the model's own; None to take that.
        files: The whole content of the model's folder by relative path; empty to take what lies there.
    """

    config: Mapping[str, Any] | None = None
    files: Mapping[str, bytes] = field(default_factory=dict)


def read_load_parameters(given: Mapping[str, object]) -> LoadParameters:
    """Check the parameters of a load.

    Args:
        given: `config`, a JSON text, and `file:<path>` with the file as bytes (gRPC) or base64 text (REST).

    Raises:
        InvalidArgument: A parameter is unknown or of the wrong type, or there are files and no config.
    """
    config = None if given.get("config") is None else _config(given["config"])
    files = {name.removeprefix(_FILE): _content(name, value) for name, value in given.items() if name.startswith(_FILE)}
    unknown = [name for name in given if name != "config" and not name.startswith(_FILE)]
    if unknown:
        raise InvalidArgument(f"unknown load parameter {unknown[0]!r}; known are config and file:<path>")
    if files and config is None:
        raise InvalidArgument("files are given without a config; a load that brings files must bring its config too")
    return LoadParameters(config, files)


def read_unload_parameters(given: Mapping[str, object]) -> bool:
    """Whether models that depend on the model go with it.

    Raises:
        InvalidArgument: A parameter is unknown or of the wrong type.
    """
    unknown = [name for name in given if name != "unload_dependents"]
    if unknown:
        raise InvalidArgument(f"unknown unload parameter {unknown[0]!r}; known is unload_dependents")
    dependents = given.get("unload_dependents", False)
    if not isinstance(dependents, bool):
        raise InvalidArgument(f"parameter 'unload_dependents' is {dependents!r}, expected a boolean")
    return dependents


def _config(text: object) -> Mapping[str, Any]:
    if not isinstance(text, str):
        raise InvalidArgument("parameter 'config' is not a string")
    try:
        config = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise InvalidArgument(f"parameter 'config' is not JSON: {error}") from None
    if not isinstance(config, dict):
        raise InvalidArgument("parameter 'config' is not a JSON object")
    return config


def _content(name: str, value: object) -> bytes:
    if isinstance(value, bytes):
        return value
    if not isinstance(value, str):
        raise InvalidArgument(f"parameter {name!r} is no file content")
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidArgument(f"parameter {name!r} is not base64: {error}") from None
