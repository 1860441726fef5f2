"""The standard grpc.health.v1 service over the server's own readiness, so that both faces always agree."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from grpc_health.v1 import health_pb2, health_pb2_grpc  # type: ignore[import-untyped]

from tidemill.serving.service import Service

__all__ = ["HEALTH_SERVICE", "Health", "add_health"]

HEALTH_SERVICE: str = health_pb2.DESCRIPTOR.services_by_name["Health"].full_name


class Health(health_pb2_grpc.HealthServicer):  # type: ignore[misc]
    """Answers for the whole server, whatever service is asked about."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def Check(self, request: Any, context: Any) -> Any:  # noqa: ARG002, N802 (the generated class's names)
        """The status now."""
        return self._status()

    async def Watch(self, request: Any, context: Any) -> AsyncIterator[Any]:  # noqa: ARG002, N802
        """The status now and after every change, until the server takes no more requests."""
        told = None
        while not self._service.refusing:
            status = self._status()
            if status != told:
                yield status
                told = status
            await self._service.readiness_changed()

    def _status(self) -> Any:
        response = health_pb2.HealthCheckResponse
        return response(status=response.SERVING if self._service.ready else response.NOT_SERVING)


def add_health(service: Service, server: Any) -> None:
    """Offer the health service on a gRPC server."""
    health_pb2_grpc.add_HealthServicer_to_server(Health(service), server)
