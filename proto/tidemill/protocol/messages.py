"""The protobuf messages of inference.proto, built at import from its committed descriptors; knows nothing of tensors.

The classes live in a descriptor pool of their own: see docs/decisions/0002-private-descriptor-pool.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from google.protobuf import json_format, text_format
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

__all__ = ["FILE", "PACKAGE", "POOL", "DecodeError", "UnknownField", "from_fields", "from_text", "message_class"]

PACKAGE = "inference"
FILE = Path(__file__).with_name("inference.binpb")


def _open_pool() -> Any:
    pool = DescriptorPool()
    for file in FileDescriptorSet.FromString(FILE.read_bytes()).file:
        pool.Add(file)
    return pool


POOL: Any = _open_pool()


def message_class(name: str) -> Any:
    """The class of a message by its name in inference.proto, for example "ModelInferRequest"."""
    return GetMessageClass(POOL.FindMessageTypeByName(f"{PACKAGE}.{name}"))


class UnknownField(ValueError):
    """A text names a field that the message has not."""


def from_text(name: str, text: str, *, allow_unknown: bool = False) -> Any:
    """The message that a text in protobuf's text format describes.

    Args:
        name: The message's name in inference.proto.
        text: The text.
        allow_unknown: Pass over fields that the message has not.

    Raises:
        UnknownField: The text names a field that the message has not.
        ValueError: It is not in the text format.
    """
    message = message_class(name)()
    try:
        text_format.Parse(text, message, allow_unknown_field=allow_unknown)
    except text_format.ParseError as error:
        kind = UnknownField if "has no field named" in str(error) else ValueError
        raise kind(str(error)) from None
    return message


def from_fields(name: str, fields: Mapping[str, Any]) -> Any:
    """The message that fields as in JSON describe; ValueError if one is unknown or wrong."""
    try:
        return json_format.ParseDict(dict(fields), message_class(name)())
    except json_format.ParseError as error:
        raise ValueError(str(error)) from None


def __getattr__(name: str) -> Any:
    try:
        return message_class(name)
    except KeyError:
        raise AttributeError(f"inference.proto has no message {name!r}") from None
