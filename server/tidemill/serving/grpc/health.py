"""The standard grpc.health.v1 service over the server's own readiness, so that both faces always agree."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc  # type: ignore[import-untyped]

from tidemill.errors import NotFound
from tidemill.protocol import rpc
from tidemill.serving.service import Service

__all__ = ["HEALTH_SERVICE", "Health", "add_health"]

HEALTH_SERVICE: str = health_pb2.DESCRIPTOR.services_by_name["Health"].full_name
_Status = health_pb2.HealthCheckResponse
_SERVER = ("", rpc.SERVICE, HEALTH_SERVICE)


class Health(health_pb2_grpc.HealthServicer):  # type: ignore[misc]
    """Answers for the whole server, or for the model that is named as the service."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def Check(self, request: Any, context: Any) -> Any:  # noqa: N802 (the generated class's name)
        """The status now; NOT_FOUND for what is neither the server nor a model."""
        status = self._status(request.service)
        if status == _Status.SERVICE_UNKNOWN:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"there is no model {request.service[:200]!r}")
        return _Status(status=status)

    async def Watch(self, request: Any, context: Any) -> AsyncIterator[Any]:  # noqa: ARG002, N802
        """The status now and after every change, until the server takes no more requests."""
        told = None
        while not self._service.refusing:
            status = self._status(request.service)
            if status != told:
                yield _Status(status=status)
                told = status
            await self._service.changes.wait()

    def _status(self, name: str) -> Any:
        if name in _SERVER:
            return _Status.SERVING if self._service.ready else _Status.NOT_SERVING
        try:
            reason = self._service.model_not_ready_reason(name)
        except NotFound:
            return _Status.SERVICE_UNKNOWN
        return _Status.NOT_SERVING if reason else _Status.SERVING


def add_health(service: Service, server: Any) -> None:
    """Offer the health service on a gRPC server."""
    health_pb2_grpc.add_HealthServicer_to_server(Health(service), server)
