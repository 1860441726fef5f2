"""The protobuf messages of inference.proto, built at import from its committed descriptors; knows nothing of tensors.

The classes live in a descriptor pool of their own: see docs/decisions/0002-private-descriptor-pool.md.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

__all__ = ["FILE", "PACKAGE", "POOL", "message_class"]

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


def __getattr__(name: str) -> Any:
    try:
        return message_class(name)
    except KeyError:
        raise AttributeError(f"inference.proto has no message {name!r}") from None
