"""The REST face as an ASGI application; knows the service and nothing of sockets."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import BaseRoute, Route

from tidemill.errors import TidemillError
from tidemill.serving.http.console import console_routes
from tidemill.serving.http.control import control_routes
from tidemill.serving.http.docs import docs_page
from tidemill.serving.http.errors import error_response, http_exception_handler, unexpected_error_handler
from tidemill.serving.http.forms import Form, Generate, Predict, infer_form
from tidemill.serving.http.generate_stream import GenerateStreamRoute
from tidemill.serving.http.infer import InferRoute
from tidemill.serving.http.management import management_routes
from tidemill.serving.http.openai import openai_routes
from tidemill.serving.http.openapi import describe
from tidemill.serving.service import Service

__all__ = ["create_app"]

_OPENAPI = "/v2/openapi.json"
_MODEL = "/v2/models/{model}"
_VERSION = _MODEL + "/versions/{version}"


def create_app(service: Service) -> FastAPI:
    """Build the application for one service."""
    app = FastAPI(
        title="tidemill",
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,
        # The hot routes come first: routes are tried in order.
        routes=_inference_routes(service),
        exception_handlers={
            TidemillError: _tidemill_error_handler,
            HTTPException: http_exception_handler,
            Exception: unexpected_error_handler,
        },
    )
    app.include_router(management_routes(service))
    app.include_router(control_routes(service))
    app.router.routes.extend(openai_routes(service))
    _add_docs(app, service)
    if service.config.console:
        app.router.routes.extend(console_routes())
    return app


def _inference_routes(service: Service) -> list[BaseRoute]:
    infer = InferRoute(service, infer_form)
    generate, predict = (_in_form(service, form) for form in (Generate(), Predict()))
    stream = GenerateStreamRoute(service)
    paths = [
        (_MODEL + "/infer", infer),
        (_VERSION + "/infer", infer),
        (_MODEL + "/generate", generate),
        (_VERSION + "/generate", generate),
        (_MODEL + "/generate_stream", stream),
        (_VERSION + "/generate_stream", stream),
        ("/v1/models/{model}:predict", predict),
    ]
    return [Route(path, route, methods=["POST"]) for path, route in paths]


def _in_form(service: Service, form: Form) -> InferRoute:
    return InferRoute(service, lambda _headers: form)


def _add_docs(app: FastAPI, service: Service) -> None:
    async def openapi(_request: Request) -> Response:
        # Made at every call: which models are served changes.
        return JSONResponse(describe(app.openapi(), service))

    async def docs(_request: Request) -> Response:
        return HTMLResponse(docs_page(_OPENAPI))

    routes: list[tuple[str, Any]] = [(_OPENAPI, openapi), ("/docs", docs), ("/v2/docs", docs)]
    for path, endpoint in routes:
        app.add_route(path, endpoint, include_in_schema=False)


async def _tidemill_error_handler(_request: Request, error: Exception) -> Response:
    return error_response(error)
