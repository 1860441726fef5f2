"""The routes that tell about the server and its models; knows them only through the service."""

from __future__ import annotations

import time
from typing import Any

from fastapi import APIRouter, Request, Response

from tidemill.errors import InvalidArgument
from tidemill.protocol.metadata import format_index, format_model_metadata, format_server_metadata
from tidemill.serving.http.bodies import json_response, read_object
from tidemill.serving.service import Service

__all__ = ["management_routes"]

_METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_MODEL = "/v2/models/{model}"
_VERSION = _MODEL + "/versions/{version}"


def management_routes(service: Service) -> APIRouter:
    """Every route that only reads."""
    router = APIRouter()
    _add_server_routes(router, service)
    _add_statistics_routes(router, service)
    _add_model_routes(router, service)
    _add_first_protocol_routes(router, service)
    return router


def _add_server_routes(router: APIRouter, service: Service) -> None:
    @router.get("/v2", tags=["server"])
    async def server_metadata() -> Response:
        """Name, version and extensions of the server."""
        return json_response(format_server_metadata(service.server_metadata()))

    @router.get("/v2/health/live", tags=["server"])
    async def live() -> Response:
        """Whether the process answers at all."""
        return json_response({"live": True})

    @router.get("/v2/health/ready", tags=["server"])
    async def ready() -> Response:
        """Whether requests should be routed here."""
        return _readiness({}, service.not_ready_reason())

    @router.get("/metrics", tags=["server"])
    async def metrics() -> Response:
        """Counters and histograms for Prometheus."""
        return Response(service.metrics.expose(), media_type=_METRICS_TYPE)

    @router.post("/v2/repository/index", tags=["repository"])
    async def index(request: Request) -> Response:
        """Every version of every model with its state; a body `{"ready": true}` lists only the ready ones."""
        ready = (await read_object(request)).get("ready", False)
        if not isinstance(ready, bool):
            raise InvalidArgument('the body must be empty or an object such as {"ready": true}')
        return json_response(format_index(service.index(ready=ready)))


def _add_statistics_routes(router: APIRouter, service: Service) -> None:
    # Before the routes of one model: this path is not a model named "stats".
    @router.get("/v2/models/stats", tags=["models"])
    async def all_statistics() -> Response:
        """What every ready model has done since the server started."""
        return json_response({"model_stats": service.statistics()})

    @router.get("/v2/requests", tags=["server"])
    async def requests() -> Response:
        """What the last requests looked like and where their time went; `tidemill bench --replay` sends such again."""
        return json_response({"requests": service.recorder.document() if service.recorder else []})

    @router.get(_MODEL + "/stats", tags=["models"])
    @router.get(_VERSION + "/stats", tags=["models"])
    async def statistics(model: str, version: str = "") -> Response:
        """What a model has done since the server started."""
        return json_response({"model_stats": service.statistics(model, version)})


def _add_model_routes(router: APIRouter, service: Service) -> None:
    @router.get("/v2/models", tags=["models"])
    async def models() -> Response:
        """The names of all models, ready or not."""
        return json_response({"models": service.model_names()})

    @router.get(_MODEL, tags=["models"])
    @router.get(_VERSION, tags=["models"])
    async def model_metadata(model: str, version: str = "") -> Response:
        """The model's signature and its ready versions."""
        return json_response(format_model_metadata(service.model_metadata(model, version)))

    @router.get(_MODEL + "/config", tags=["models"])
    @router.get(_VERSION + "/config", tags=["models"])
    async def model_config(model: str, version: str = "") -> Response:
        """How the model is served."""
        return json_response(service.model_config(model, version))

    @router.get(_MODEL + "/graph", tags=["models"])
    @router.get(_VERSION + "/graph", tags=["models"])
    async def model_graph(model: str, version: str = "") -> Response:
        """The nodes of the model's graph and the functions that they share, without weights."""
        return json_response(await service.model_graph(model, version))

    @router.get(_MODEL + "/ready", tags=["models"])
    @router.get(_VERSION + "/ready", tags=["models"])
    async def model_ready(model: str, version: str = "") -> Response:
        """Whether the model takes requests."""
        return _readiness({"name": model}, service.model_not_ready_reason(model, version))


def _add_first_protocol_routes(router: APIRouter, service: Service) -> None:
    created = int(time.time())

    @router.get("/v1/models", tags=["v1"])
    async def models() -> Response:
        """The names of all models, ready or not, as KServe's clients read them; those that are ready as OpenAI's do."""
        ready = {entry.name for entry in service.index(ready=True)}
        names = service.model_names()
        data = [_as_openai(name, created) for name in names if name in ready]
        return json_response({"models": names, "object": "list", "data": data})

    @router.get("/v1/models/{model}", tags=["v1"])
    async def model_ready(model: str) -> Response:
        """Whether the model takes requests, as KServe's clients read it; OpenAI's find its name."""
        named = {"name": model, **_as_openai(model, created)}
        return _readiness(named, service.model_not_ready_reason(model))


def _as_openai(name: str, created: int) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": created, "owned_by": "tidemill"}


def _readiness(owner: dict[str, Any], reason: str) -> Response:
    if reason:
        return json_response({**owner, "ready": False, "error": reason}, status=503)
    return json_response({**owner, "ready": True})
