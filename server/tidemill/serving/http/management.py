"""The routes that tell about the server and its models; knows them only through the service."""

from __future__ import annotations

from typing import Any

import orjson
from fastapi import APIRouter, Request, Response

from tidemill.errors import InvalidArgument
from tidemill.protocol.metadata import format_index, format_model_metadata, format_server_metadata
from tidemill.serving.http.body import read_body
from tidemill.serving.service import Service

__all__ = ["management_routes"]

_METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_MAX_INDEX_BODY = 64 << 10
_MODEL = "/v2/models/{model}"
_VERSION = _MODEL + "/versions/{version}"


def management_routes(service: Service) -> APIRouter:
    """Every route but inference."""
    router = APIRouter()
    _add_server_routes(router, service)
    _add_model_routes(router, service)
    _add_repository_routes(router, service)
    return router


def _add_server_routes(router: APIRouter, service: Service) -> None:
    @router.get("/v2", tags=["server"])
    async def server_metadata() -> Response:
        """Name, version and extensions of the server."""
        return _json(format_server_metadata(service.server_metadata()))

    @router.get("/v2/health/live", tags=["server"])
    async def live() -> Response:
        """Whether the process answers at all."""
        return _json({"live": True})

    @router.get("/v2/health/ready", tags=["server"])
    async def ready() -> Response:
        """Whether requests should be routed here."""
        return _readiness({}, service.not_ready_reason())

    @router.get("/metrics", tags=["server"])
    async def metrics() -> Response:
        """Counters and histograms for Prometheus."""
        return Response(service.metrics.expose(), media_type=_METRICS_TYPE)


def _add_model_routes(router: APIRouter, service: Service) -> None:
    @router.get("/v2/models", tags=["models"])
    async def models() -> Response:
        """The names of all models, ready or not."""
        return _json({"models": service.model_names()})

    @router.get(_MODEL, tags=["models"])
    @router.get(_VERSION, tags=["models"])
    async def model_metadata(model: str, version: str = "") -> Response:
        """The model's signature and its ready versions."""
        return _json(format_model_metadata(service.model_metadata(model, version)))

    @router.get(_MODEL + "/ready", tags=["models"])
    @router.get(_VERSION + "/ready", tags=["models"])
    async def model_ready(model: str, version: str = "") -> Response:
        """Whether the model takes requests."""
        return _readiness({"name": model}, service.model_not_ready_reason(model, version))


def _add_repository_routes(router: APIRouter, service: Service) -> None:
    @router.post("/v2/repository/index", tags=["repository"])
    async def index(request: Request) -> Response:
        """Every version of every model with its state; a body `{"ready": true}` lists only the ready ones."""
        body = await read_body(request.receive, _MAX_INDEX_BODY)
        return _json(format_index(service.index(ready=_ready_only(body))))


def _ready_only(body: bytes | bytearray) -> bool:
    if not body:
        return False
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise InvalidArgument(f"the body is not JSON: {error}") from None
    ready = document.get("ready", False) if isinstance(document, dict) else None
    if not isinstance(ready, bool):
        raise InvalidArgument('the body must be empty or an object such as {"ready": true}')
    return ready


def _readiness(owner: dict[str, Any], reason: str) -> Response:
    if reason:
        return _json({**owner, "ready": False, "error": reason}, status=503)
    return _json({**owner, "ready": True})


def _json(document: object, status: int = 200) -> Response:
    return Response(orjson.dumps(document), status, media_type="application/json")
