"""Call a server of the Open Inference Protocol: tidemill, Triton, KServe or another.

`Client` and `AsyncClient` speak HTTP with `tidemill[client]` and gRPC with `tidemill[grpc]`; what a wire needs is
imported when a client of it is made, so that one works without the other's libraries. The asyncio classes are imported
when first named, for asyncio itself takes a third of the time.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tidemill.client.client import Client, Model
from tidemill.client.feed import InferOptions
from tidemill.client.settings import Settings

if TYPE_CHECKING:
    from tidemill.client.async_client import AsyncClient, AsyncModel

__all__ = ["AsyncClient", "AsyncModel", "Client", "InferOptions", "Model", "Settings"]


def __getattr__(name: str) -> Any:
    if name not in ("AsyncClient", "AsyncModel"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("tidemill.client.async_client"), name)
