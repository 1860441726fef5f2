"""The REST face as an ASGI application; knows the service and nothing of sockets."""

from __future__ import annotations

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tidemill.errors import TidemillError
from tidemill.serving.http.errors import error_response, http_exception_handler, unexpected_error_handler
from tidemill.serving.http.infer import InferRoute
from tidemill.serving.http.management import management_routes
from tidemill.serving.service import Service

__all__ = ["create_app"]


def create_app(service: Service) -> FastAPI:
    """Build the application for one service."""
    infer = InferRoute(service)
    app = FastAPI(
        title="tidemill",
        docs_url="/v2/docs",
        redoc_url=None,
        openapi_url="/v2/openapi.json",
        redirect_slashes=False,
        # The hot route comes first: routes are tried in order.
        routes=[
            Route("/v2/models/{model}/infer", infer, methods=["POST"]),
            Route("/v2/models/{model}/versions/{version}/infer", infer, methods=["POST"]),
        ],
        exception_handlers={
            TidemillError: _tidemill_error_handler,
            HTTPException: http_exception_handler,
            Exception: unexpected_error_handler,
        },
    )
    app.include_router(management_routes(service))
    return app


async def _tidemill_error_handler(_request: Request, error: Exception) -> Response:
    return error_response(error)
