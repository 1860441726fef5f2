"""The routes that change the server: models, shared memory, settings; knows them only through the service."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from fastapi import APIRouter, Depends, Request, Response

from tidemill.errors import InvalidArgument, Unauthenticated, Unsupported
from tidemill.protocol.control import read_load_parameters, read_unload_parameters
from tidemill.serving.http.bodies import json_response, parameters_of, read_object
from tidemill.serving.service import Service
from tidemill.serving.shared_memory import Region

__all__ = ["control_routes"]

_NO_CUDA = "this server offers no CUDA shared memory; use system shared memory or send the tensors"


def control_routes(service: Service) -> APIRouter:
    """Every route that changes something; web pages of other origins cannot call them."""
    router = APIRouter(dependencies=[Depends(_refuse_foreign_pages)])
    _add_repository_routes(router, service)
    _add_system_memory_routes(router, service)
    _add_cuda_memory_routes(router)
    _add_trace_routes(router, service)
    _add_log_routes(router, service)
    return router


def _add_repository_routes(router: APIRouter, service: Service) -> None:
    @router.post("/v2/repository/models/{model}/load", tags=["repository"])
    async def load(model: str, request: Request) -> Response:
        """Load a model, or load it again; answers when it is ready."""
        document = await read_object(request, service.config.max_request_bytes)
        await service.control.load(model, read_load_parameters(parameters_of(document)))
        return Response()

    @router.post("/v2/repository/models/{model}/unload", tags=["repository"])
    async def unload(model: str, request: Request) -> Response:
        """Take a model out of service; requests in flight finish."""
        dependents = read_unload_parameters(parameters_of(await read_object(request)))
        await service.control.unload(model, dependents=dependents)
        return Response()

    @router.post("/v2/repository/{repository}/index", tags=["repository"])
    @router.post("/v2/repository/{repository}/models/{model}/load", tags=["repository"])
    @router.post("/v2/repository/{repository}/models/{model}/unload", tags=["repository"])
    async def named(repository: str) -> Response:
        """Refused: repositories have no names here."""
        raise Unsupported(f"repositories have no names here; leave {repository[:200]!r} out of the path")


def _add_system_memory_routes(router: APIRouter, service: Service) -> None:
    memory = service.memory

    @router.get("/v2/systemsharedmemory/status", tags=["shared memory"])
    @router.get("/v2/systemsharedmemory/region/{name}/status", tags=["shared memory"])
    async def status(name: str = "") -> Response:
        """The registered regions, or one of them."""
        return json_response([_region_document(region) for region in memory.regions(name)])

    @router.post("/v2/systemsharedmemory/region/{name}/register", tags=["shared memory"])
    async def register(name: str, request: Request) -> Response:
        """Register a region: a shared memory object's `key`, `byte_size` and optional `offset`."""
        document = await read_object(request)
        key = document.get("key")
        if not isinstance(key, str):
            raise InvalidArgument(f"'key' is {key!r}, expected the name of a shared memory object")
        memory.register(name, key, _count(document, "byte_size"), _count(document, "offset", default=0))
        return Response()

    @router.post("/v2/systemsharedmemory/unregister", tags=["shared memory"])
    @router.post("/v2/systemsharedmemory/region/{name}/unregister", tags=["shared memory"])
    async def unregister(name: str = "") -> Response:
        """Forget a region, or all of them."""
        memory.unregister(name)
        return Response()


def _add_cuda_memory_routes(router: APIRouter) -> None:
    @router.get("/v2/cudasharedmemory/status", tags=["shared memory"])
    async def status() -> Response:
        """The registered regions: none, they are not offered."""
        return json_response([])

    @router.post("/v2/cudasharedmemory/unregister", tags=["shared memory"])
    @router.post("/v2/cudasharedmemory/region/{name}/unregister", tags=["shared memory"])
    async def unregister() -> Response:
        """Forget regions; there are none."""
        return Response()

    @router.get("/v2/cudasharedmemory/region/{name}/status", tags=["shared memory"])
    @router.post("/v2/cudasharedmemory/region/{name}/register", tags=["shared memory"])
    async def refused() -> Response:
        """Refused: not offered."""
        raise Unsupported(_NO_CUDA)


def _add_trace_routes(router: APIRouter, service: Service) -> None:
    @router.get("/v2/trace/setting", tags=["settings"])
    @router.get("/v2/models/{model}/trace/setting", tags=["settings"])
    async def settings(model: str = "") -> Response:
        """Which requests leave a trace."""
        return json_response(_trace_document(service.trace_settings(model)))

    @router.post("/v2/trace/setting", tags=["settings"])
    @router.post("/v2/models/{model}/trace/setting", tags=["settings"])
    async def update(request: Request, model: str = "") -> Response:
        """Change some trace settings; null takes one back."""
        document = await read_object(request)
        changes = {name: _trace_values(name, value) for name, value in document.items()}
        service.update_trace_settings(changes, model)
        return json_response(_trace_document(service.trace_settings(model)))


def _add_log_routes(router: APIRouter, service: Service) -> None:
    @router.get("/v2/logging", tags=["settings"])
    async def settings() -> Response:
        """What the log holds."""
        return json_response(service.logs.get())

    @router.post("/v2/logging", tags=["settings"])
    async def update(request: Request) -> Response:
        """Change some log settings."""
        service.update_log_settings(await read_object(request))
        return json_response(service.logs.get())


def _refuse_foreign_pages(request: Request) -> None:
    # A page on the web can make its reader's browser post to this machine; the browser says where the page is from.
    origin = request.headers.get("origin")
    if origin is not None and urlsplit(origin).netloc != request.headers.get("host"):
        raise Unauthenticated(f"pages from {origin[:200]!r} may not control this server")


def _region_document(region: Region) -> dict[str, Any]:
    return {"name": region.name, "key": region.key, "offset": region.offset, "byte_size": region.byte_size}


def _count(document: Mapping[str, Any], name: str, default: int | None = None) -> int:
    value = document.get(name, default)
    if type(value) is not int or value < 0:
        raise InvalidArgument(f"{name!r} is {value!r}, expected a whole number from 0 on")
    return value


def _trace_document(settings: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    return {name: list(values) if name == "trace_level" else values[0] for name, values in settings.items()}


def _trace_values(name: str, value: object) -> list[str]:
    if value is None:
        return []
    values = value if isinstance(value, list) else [value]
    if not all(isinstance(item, str | int) and not isinstance(item, bool) for item in values):
        raise InvalidArgument(f"trace setting {name!r} is {value!r}, expected a string, a list of strings or null")
    return [str(item) for item in values]
