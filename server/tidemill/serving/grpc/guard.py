"""The door of the gRPC face: which group of the API a method belongs to, and whether its caller has a key for that."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import grpc

from tidemill.errors import Unauthenticated
from tidemill.protocol import rpc
from tidemill.serving.grpc.health import HEALTH_SERVICE
from tidemill.serving.keys import Group, KeyRing
from tidemill.serving.metrics import Metrics

__all__ = ["GROUPS_BY_METHOD", "Guard", "group_of", "shown_key"]

GROUPS_BY_METHOD: dict[str, Group] = {
    "ServerLive": "health",
    "ServerReady": "health",
    "ModelReady": "health",
    "ServerMetadata": "metadata",
    "ModelMetadata": "metadata",
    "ModelConfig": "metadata",
    "RepositoryIndex": "metadata",
    "ModelInfer": "inference",
    "ModelStreamInfer": "inference",
    "SystemSharedMemoryStatus": "inference",
    "SystemSharedMemoryRegister": "inference",
    "SystemSharedMemoryUnregister": "inference",
    "CudaSharedMemoryStatus": "inference",
    "CudaSharedMemoryRegister": "inference",
    "CudaSharedMemoryUnregister": "inference",
    "ModelStatistics": "statistics",
    "RepositoryModelLoad": "repository",
    "RepositoryModelUnload": "repository",
    "TraceSetting": "settings",
    "LogSettings": "settings",
}
_BEARER = "bearer "


class Guard(grpc.aio.ServerInterceptor):  # type: ignore[misc]
    """Stands before every method."""

    def __init__(self, ring: KeyRing, metrics: Metrics) -> None:
        self._ring = ring
        self._metrics = metrics

    async def intercept_service(self, continuation: Callable[[Any], Awaitable[Any]], details: Any) -> Any:
        """Hand over to the method's handler, or to one that refuses."""
        handler = await continuation(details)
        try:
            self._ring.keys.check(group_of(details.method), shown_key(details.invocation_metadata))
        except Unauthenticated as error:
            self._metrics.unknown.on_request("grpc", error.code, 0.0)
            return _refusing(handler, str(error)) if handler else handler
        return handler


def group_of(method: str) -> Group:
    """The group of a full method name; what is not the inference service's or health's tells about the server."""
    service, _, name = method.lstrip("/").rpartition("/")
    if service == HEALTH_SERVICE:
        return "health"
    return GROUPS_BY_METHOD.get(name, "metadata") if service == rpc.SERVICE else "metadata"


def shown_key(metadata: Iterable[tuple[str, Any]] | None) -> str | None:
    """The API key in a call's metadata; None if there is none."""
    for name, value in metadata or ():
        if name == "x-api-key":
            return str(value)
        if name == "authorization" and str(value)[: len(_BEARER)].lower() == _BEARER:
            return str(value)[len(_BEARER) :].strip()
    return None


def _refusing(handler: Any, reason: str) -> Any:
    """A handler of the same kind that refuses every call."""

    async def unary(_request: Any, context: Any) -> None:
        await context.abort(grpc.StatusCode.UNAUTHENTICATED, reason)

    async def stream(_request: Any, context: Any) -> Any:
        await context.abort(grpc.StatusCode.UNAUTHENTICATED, reason)
        yield

    kinds = {
        (False, False): grpc.unary_unary_rpc_method_handler(unary),
        (False, True): grpc.unary_stream_rpc_method_handler(stream),
        (True, False): grpc.stream_unary_rpc_method_handler(unary),
        (True, True): grpc.stream_stream_rpc_method_handler(stream),
    }
    return kinds[handler.request_streaming, handler.response_streaming]
