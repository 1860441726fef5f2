"""The asyncio client: the calls of the blocking one, awaited; the questions and their answers are the core's."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

from tidemill.client.attempts import Attempts, Policy
from tidemill.client.call import Call
from tidemill.client.client import NOT_READY, named
from tidemill.client.connect import open_transport, open_wire, settle
from tidemill.client.feed import InferOptions, build_policy, build_request
from tidemill.client.model import check_inputs, check_outputs
from tidemill.client.settings import Settings
from tidemill.errors import TidemillError, Unavailable
from tidemill.protocol.index import ModelIndex
from tidemill.protocol.types import Array, ModelMetadata, ServerMetadata

__all__ = ["AsyncClient", "AsyncModel"]

T = TypeVar("T")


class AsyncClient:
    """The asyncio client of one server, with the arguments, methods and errors of `Client`.

    A cancelled call is cancelled on the server too. One client may be used in one event loop after another.
    """

    def __init__(
        self, url: str = "", *, headers: Mapping[str, str] | None = None, settings: Settings | None = None
    ) -> None:
        self._settings, address = settle(url, headers, settings)
        self.url = str(address)
        self._wire = open_wire(address, self._settings)
        self._transport = open_transport(address, self._settings, "Async")
        self._policy = Policy(self._settings.timeout, self._settings.retries, repeatable=True)
        self._once = Policy(self._settings.timeout)

    async def infer(self, model: str, inputs: Mapping[str, Any], **options: Unpack[InferOptions]) -> dict[str, Array]:
        """Run a model on one request; see `Client.infer`."""
        policy = build_policy(options, self._settings)
        call = self._wire.infer(build_request(model, inputs, options, policy.timeout))
        try:
            return await self._send(call, policy)
        except TidemillError as error:
            raise named(error, options.get("id", "")) from error.__cause__

    async def model(self, name: str, version: str = "") -> AsyncModel:
        """A model whose inputs are checked before they are sent; asks the server for its signature once."""
        return AsyncModel(self, await self.metadata(name, version), version)

    async def metadata(self, model: str, version: str = "") -> ModelMetadata:
        """The model's signature, versions and platform."""
        return await self._send(self._wire.metadata(model, version), self._policy)

    async def server_metadata(self) -> ServerMetadata:
        """The server's name, version and extensions."""
        return await self._send(self._wire.server_metadata(), self._policy)

    async def server_ready(self) -> bool:
        """Whether the server takes requests; False also if it cannot be reached."""
        try:
            return await self._send(self._wire.ready("", ""), self._once)
        except Unavailable:
            return False

    async def model_ready(self, model: str, version: str = "") -> bool:
        """Whether the model (or this version of it) takes requests; False also if the server does not know it."""
        try:
            return await self._send(self._wire.ready(model, version), self._once)
        except NOT_READY:
            return False

    async def index(self) -> tuple[ModelIndex, ...]:
        """The model versions that the repository knows, with their states."""
        return await self._send(self._wire.index(), self._policy)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._transport.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def _send(self, call: Call[T], policy: Policy) -> T:
        attempts = Attempts(policy)
        while True:
            try:
                return call.read(await self._transport.send(call, attempts.left()))
            except Unavailable as error:
                delay = attempts.delay(error)
            await asyncio.sleep(delay)


class AsyncModel:
    """One model of a server; see `Model`.

    Attributes:
        metadata: The signature, as the server told it.
    """

    def __init__(self, client: AsyncClient, metadata: ModelMetadata, version: str = "") -> None:
        self.metadata = metadata
        self._client = client
        self._version = version

    async def infer(self, inputs: Mapping[str, Any], **options: Unpack[InferOptions]) -> dict[str, Array]:
        """See `Client.infer`."""
        arrays = check_inputs(self.metadata, inputs)
        check_outputs(self.metadata, options.get("outputs", ()))
        options.setdefault("version", self._version)
        return await self._client.infer(self.metadata.name, arrays, **options)
