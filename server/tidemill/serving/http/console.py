"""The console: one page with its scripts, served from files of our own, so that it works without the internet."""

from __future__ import annotations

from pathlib import Path

from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import BaseRoute, Route

__all__ = ["console_routes"]

_FOLDER = Path(__file__).with_name("console")
_FILES = {path.name: path for path in _FOLDER.iterdir() if path.suffix in (".html", ".css", ".js", ".svg")}
_TYPES = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml", ".html": "text/html"}
# Nothing from elsewhere runs in the page, and no other page shows it in a frame to catch clicks meant for it.
_HEADERS = {
    "Content-Security-Policy": "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


def console_routes() -> list[BaseRoute]:
    """The page at / and its parts below /console/."""
    return [Route("/", _page), *(Route(f"/console/{name}", _part) for name in _FILES if name != "index.html")]


async def _page(_request: Request) -> Response:
    return _file("index.html")


async def _part(request: Request) -> Response:
    return _file(request.url.path.rsplit("/", 1)[-1])


def _file(name: str) -> Response:
    return FileResponse(_FILES[name], media_type=_TYPES[_FILES[name].suffix], headers=_HEADERS)
