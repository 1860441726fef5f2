"""A real web server with ranges and etags, whose faults a test chooses."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote

import pytest

from tidemill.weights.objectstore import StoreOptions

PATIENCE = StoreOptions(connect_seconds=2, stall_seconds=0.4, retries=2, backoff_seconds=0.01)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    site: Site

    def log_message(self, *_: Any) -> None:
        pass

    def do_HEAD(self) -> None:
        self.answer()

    def do_GET(self) -> None:
        self.answer()

    def answer(self) -> None:
        self.path = unquote(self.path.partition("?")[0])
        self.site.requests.append((self.command, self.path, self.headers.get("Range")))
        self.site.headers.append({name.lower(): value for name, value in self.headers.items()})
        try:
            if not self.site.fault(self):
                self.send_file()
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    def send_file(self, *, stop_after: int | None = None) -> None:
        content = self.site.files.get(self.path)
        if content is None:
            return self.send_error(404)
        etag = self.site.etag(content)
        wanted = self.headers.get("If-Match")
        if wanted and self.site.heeds_if_match and wanted != etag:
            return self.send_error(412)
        span = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range") or "") if self.site.has_ranges else None
        begin, end = (int(span[1]), min(int(span[2]) + 1, len(content))) if span else (0, len(content))
        self.send_response(206 if span else 200)
        if span:
            self.send_header("Content-Range", f"bytes {begin}-{end - 1}/{len(content)}")
        if etag:
            self.send_header("ETag", etag)
        if self.site.date:
            self.send_header("Last-Modified", self.site.date)
        self.send_header("Content-Length", str(end - begin))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content[begin:end][:stop_after])
        if stop_after is not None:
            self.close_connection = True
        return None


@dataclass
class Site:
    """The files of a web server, and how it misbehaves.

    `fault` is asked at each request; it may answer by itself, and then says so.
    """

    url: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    fault: Callable[[Handler], Any] = lambda _: False
    etag: Callable[[bytes], str | None] = lambda content: f'"{hash(content)}"'
    date: str = ""
    has_ranges: bool = True
    heeds_if_match: bool = True
    requests: list[tuple[str, str, str | None]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)

    def put(self, name: str, content: bytes) -> str:
        self.files[f"/{name}"] = content
        return f"{self.url}/{name}"

    @property
    def downloads(self) -> int:
        return sum(command == "GET" for command, *_ in self.requests)


@pytest.fixture
def site() -> Iterator[Site]:
    site = Site()
    handler = type("SiteHandler", (Handler,), {"site": site})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    site.url = f"http://127.0.0.1:{server.server_port}"
    yield site
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def patience() -> StoreOptions:
    """For servers that answer at once or never."""
    return PATIENCE
