"""HTTP clients, blocking and asyncio: they move the bytes that `http_core` writes and reads."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Self

import httpx
import numpy.typing as npt

from tidemill.client import http_core as core
from tidemill.client.feed import build_request
from tidemill.errors import DeadlineExceeded, Unavailable
from tidemill.protocol.index import ModelIndex
from tidemill.protocol.types import Array, ModelMetadata, Parameter, ServerMetadata

__all__ = ["AsyncHttpClient", "HttpClient"]

_CONNECT_SECONDS = 10.0
# Compressing tensors costs far more time than it saves on the wire; callers' own headers can ask for it.
_HEADERS = {"accept-encoding": "identity"}


class HttpClient:
    """A blocking client of one server. Threads may share it; connections are kept and reused.

    Args:
        url: The server, for example "localhost:8000" or "https://models.example.org".
        headers: Sent with every request, for example an API key.

    Example:
        >>> with HttpClient("localhost:8000") as client:
        ...     outputs = client.infer("mlp", {"x": np.zeros((1, 5), np.float32)})
    """

    def __init__(self, url: str = "localhost:8000", *, headers: Mapping[str, str] | None = None) -> None:
        self.url = core.base_url(url)
        self._http = httpx.Client(base_url=self.url, headers={**_HEADERS, **(headers or {})}, timeout=_timeout(None))

    def infer(
        self,
        model: str,
        inputs: Mapping[str, npt.ArrayLike],
        *,
        version: str = "",
        outputs: Sequence[str] = (),
        id: str = "",  # noqa: A002
        timeout: float | None = None,
    ) -> dict[str, Array]:
        """Run a model on one request.

        Args:
            model: The served model's name.
            inputs: Arrays by input name, in any memory layout and byte order. They are sent with the dtype that they
                have. Text goes as BYTES: `str` as UTF-8, `bytes` as they are; use object arrays where trailing zero
                bytes matter, for numpy itself drops them from "S" and "U" arrays.
            version: The version to ask; "" for the newest.
            outputs: The outputs to return; empty for all.
            id: An id that shows in the server's logs.
            timeout: Seconds of silence until the client gives up; the server is told, so that it drops the request
                too. None waits for as long as it takes.

        Returns:
            Arrays by output name. BYTES outputs are object arrays of `bytes`.

        Raises:
            InvalidArgument: The inputs are no tensors, or the server refuses them.
            NotFound: The server has no such model or version.
            Unavailable: The server cannot be reached or is overloaded.
            DeadlineExceeded: The timeout passed.
            TidemillError: Any other error of the server, with its text.
        """
        request = build_request(
            model, inputs, version=version, outputs=outputs, request_id=id, parameters=_parameters(timeout)
        )
        return core.read_infer(self._send(core.infer_call(request), timeout))

    def metadata(self, model: str, version: str = "") -> ModelMetadata:
        """The model's signature, versions and platform."""
        return core.read_metadata(self._send(core.metadata_call(model, version)))

    def server_metadata(self) -> ServerMetadata:
        """The server's name, version and extensions."""
        return core.read_server_metadata(self._send(core.metadata_call()))

    def server_ready(self) -> bool:
        """Whether the server takes requests; False also if it cannot be reached."""
        try:
            return core.read_ready(self._send(core.ready_call()))
        except Unavailable:
            return False

    def model_ready(self, model: str, version: str = "") -> bool:
        """Whether the model (or this version of it) takes requests; False also if the server does not know it."""
        return core.read_ready(self._send(core.ready_call(model, version)))

    def index(self) -> tuple[ModelIndex, ...]:
        """The model versions that the repository knows, with their states."""
        return core.read_index(self._send(core.index_call()))

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _send(self, call: core.Call, timeout: float | None = None) -> core.Reply:
        with _httpx_errors(self.url, timeout):
            try:
                return self._attempt(call, timeout)
            except httpx.RemoteProtocolError:
                # The server closed an idle connection just as it was taken; no call here changes the server's state.
                return self._attempt(call, timeout)

    def _attempt(self, call: core.Call, timeout: float | None) -> core.Reply:
        response = self._http.request(
            call.method, call.path, headers=dict(call.headers), content=call.content, timeout=_timeout(timeout)
        )
        return _reply(response)


class AsyncHttpClient:
    """The asyncio client of one server, with the methods and errors of `HttpClient`.

    It belongs to the event loop in which it is first used.
    """

    def __init__(self, url: str = "localhost:8000", *, headers: Mapping[str, str] | None = None) -> None:
        self.url = core.base_url(url)
        self._http = httpx.AsyncClient(
            base_url=self.url, headers={**_HEADERS, **(headers or {})}, timeout=_timeout(None)
        )

    async def infer(
        self,
        model: str,
        inputs: Mapping[str, npt.ArrayLike],
        *,
        version: str = "",
        outputs: Sequence[str] = (),
        id: str = "",  # noqa: A002
        timeout: float | None = None,
    ) -> dict[str, Array]:
        """Run a model on one request; see `HttpClient.infer`."""
        request = build_request(
            model, inputs, version=version, outputs=outputs, request_id=id, parameters=_parameters(timeout)
        )
        return core.read_infer(await self._send(core.infer_call(request), timeout))

    async def metadata(self, model: str, version: str = "") -> ModelMetadata:
        """The model's signature, versions and platform."""
        return core.read_metadata(await self._send(core.metadata_call(model, version)))

    async def server_metadata(self) -> ServerMetadata:
        """The server's name, version and extensions."""
        return core.read_server_metadata(await self._send(core.metadata_call()))

    async def server_ready(self) -> bool:
        """Whether the server takes requests; False also if it cannot be reached."""
        try:
            return core.read_ready(await self._send(core.ready_call()))
        except Unavailable:
            return False

    async def model_ready(self, model: str, version: str = "") -> bool:
        """Whether the model (or this version of it) takes requests; False also if the server does not know it."""
        return core.read_ready(await self._send(core.ready_call(model, version)))

    async def index(self) -> tuple[ModelIndex, ...]:
        """The model versions that the repository knows, with their states."""
        return core.read_index(await self._send(core.index_call()))

    async def aclose(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def _send(self, call: core.Call, timeout: float | None = None) -> core.Reply:
        with _httpx_errors(self.url, timeout):
            async with asyncio.timeout(timeout):
                try:
                    return await self._attempt(call, timeout)
                except httpx.RemoteProtocolError:
                    return await self._attempt(call, timeout)

    async def _attempt(self, call: core.Call, timeout: float | None) -> core.Reply:
        response = await self._http.request(
            call.method, call.path, headers=dict(call.headers), content=call.content, timeout=_timeout(timeout)
        )
        return _reply(response)


def _parameters(timeout: float | None) -> dict[str, Parameter]:
    return {} if timeout is None else {"timeout": max(1, int(timeout * 1_000_000))}


def _timeout(seconds: float | None) -> httpx.Timeout:
    connect = _CONNECT_SECONDS if seconds is None else min(seconds, _CONNECT_SECONDS)
    return httpx.Timeout(seconds, connect=connect)


def _reply(response: httpx.Response) -> core.Reply:
    return core.Reply(response.status_code, response.headers, response.content)


@contextmanager
def _httpx_errors(url: str, timeout: float | None) -> Iterator[None]:
    try:
        yield
    except httpx.ConnectTimeout as error:
        raise Unavailable(f"cannot reach {url}: no connection within its time limit") from error
    except (TimeoutError, httpx.TimeoutException) as error:
        raise DeadlineExceeded(f"{url} did not answer within {timeout} s") from error
    except httpx.TransportError as error:
        raise Unavailable(f"cannot reach {url}: {error}") from error
