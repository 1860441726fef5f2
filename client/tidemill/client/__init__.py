"""Call a server of the Open Inference Protocol: tidemill, Triton, KServe or another.

`HttpClient` and `AsyncHttpClient` need `tidemill[client]`, `GrpcClient` and `AsyncGrpcClient` need `tidemill[grpc]`;
each is imported when first named, so that one works without the other's libraries.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidemill.client.grpc import AsyncGrpcClient, GrpcClient
    from tidemill.client.http import AsyncHttpClient, HttpClient

__all__ = ["AsyncGrpcClient", "AsyncHttpClient", "GrpcClient", "HttpClient"]

_HOMES = {
    "AsyncGrpcClient": ("tidemill.client.grpc", "grpc"),
    "AsyncHttpClient": ("tidemill.client.http", "client"),
    "GrpcClient": ("tidemill.client.grpc", "grpc"),
    "HttpClient": ("tidemill.client.http", "client"),
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, extra = _HOMES[name]
    try:
        return getattr(import_module(module), name)
    except ModuleNotFoundError as error:
        raise ImportError(f'{name} needs {error.name}; install it with: pip install "tidemill[{extra}]"') from error
