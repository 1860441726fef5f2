"""The server that is measured, asked by way of tidemill's client for what is not load."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

import httpx
import orjson

from tidemill.bench.settings import Settings
from tidemill.client import Client
from tidemill.errors import ConfigError, TidemillError
from tidemill.protocol.status import error_from_http
from tidemill.protocol.types import Array, ModelMetadata

__all__ = ["Target", "fetch_recording"]


class Target:
    """A server under its addresses; close it, or use it in `with`."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        headers = dict(settings.headers)
        self._client = Client(settings.http_url or settings.grpc_url, headers=headers)
        self._http = httpx.Client(base_url=settings.http_url, headers=headers)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def signature(self) -> ModelMetadata:
        """What the model takes and gives."""
        return self._client.metadata(self._settings.model, self._settings.version)

    def about(self) -> dict[str, Any]:
        """Name and version of the server."""
        metadata = self._client.server_metadata()
        return {"name": metadata.name, "version": metadata.version}

    def infer(self, feed: Mapping[str, Array]) -> dict[str, Array]:
        """One answer, read and checked."""
        settings = self._settings
        return self._client.infer(settings.model, feed, version=settings.version, timeout=settings.timeout_seconds)

    def statistics(self) -> Mapping[str, Any] | None:
        """The sums of the version that answers; None if the server keeps none, or REST is not known."""
        if not self._settings.http_url:
            return None
        try:
            found = self._call("GET", f"/v2/models/{quote(self._settings.model, safe='')}/stats")["model_stats"]
        except (TidemillError, httpx.HTTPError, KeyError, orjson.JSONDecodeError):
            return None
        wanted = self._settings.version
        ran = [item for item in found if item.get("version") == wanted or not wanted]
        return max(ran, key=lambda item: int(item.get("last_inference", 0)), default=None)

    def register(self, name: str, key: str, byte_size: int) -> None:
        """Register a shared memory region."""
        body = {"key": key, "offset": 0, "byte_size": byte_size}
        self._call("POST", f"/v2/systemsharedmemory/region/{name}/register", body)

    def unregister(self, name: str) -> None:
        """Forget a shared memory region."""
        self._call("POST", f"/v2/systemsharedmemory/region/{name}/unregister", {})

    def _call(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        answer = self._http.request(method, path, content=None if body is None else orjson.dumps(body))
        if answer.status_code != 200:
            raise error_from_http(answer.status_code, _text(answer.content))
        return orjson.loads(answer.content) if answer.content else {}


def fetch_recording(url: str, headers: Mapping[str, str]) -> Any:
    """What a server has recorded, for `replay.read_recording`.

    Raises:
        ConfigError: It does not answer, or has no recorder.
    """
    try:
        return httpx.get(f"{url.rstrip('/')}/v2/requests", headers=dict(headers)).raise_for_status().json()
    except (httpx.HTTPError, ValueError) as error:
        raise ConfigError(f"{url} tells of no requests: {error}") from error


def _text(body: bytes) -> str:
    """The server's own words, or whatever stands in their place."""
    try:
        return str(orjson.loads(body)["error"])
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return body[:500].decode(errors="replace")
