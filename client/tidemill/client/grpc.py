"""gRPC clients, blocking and asyncio, over the method table of the protocol."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self

import grpc
import numpy.typing as npt

from tidemill.client.feed import build_request
from tidemill.errors import InvalidArgument, NotFound, Unavailable
from tidemill.protocol import messages, rpc
from tidemill.protocol.index import ModelIndex
from tidemill.protocol.status import error_from_grpc
from tidemill.protocol.types import Array, ModelMetadata, ServerMetadata

__all__ = ["AsyncGrpcClient", "GrpcClient"]

# gRPC would refuse messages above 4 MiB.
_OPTIONS = (("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1))
# Triton answers INVALID_ARGUMENT for a model that it does not know.
_NOT_READY = (Unavailable, NotFound, InvalidArgument)


class GrpcClient:
    """A blocking client of one server. Threads may share it; all calls go over one connection.

    Args:
        target: The server's gRPC address, for example "localhost:8001".
        metadata: Sent with every call, for example an API key.

    Example:
        >>> with GrpcClient("localhost:8001") as client:
        ...     outputs = client.infer("mlp", {"x": np.zeros((1, 5), np.float32)})
    """

    def __init__(self, target: str = "localhost:8001", *, metadata: Mapping[str, str] | None = None) -> None:
        self._channel = grpc.insecure_channel(_target(target), options=_OPTIONS)
        self._callables = _callables(self._channel)
        self._metadata = tuple((metadata or {}).items())

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
            timeout: Seconds until the call is given up on both sides. None waits for as long as it takes.

        Returns:
            Arrays by output name. BYTES outputs are object arrays of `bytes`.

        Raises:
            InvalidArgument: The inputs are no tensors, or the server refuses them.
            NotFound: The server has no such model or version.
            Unavailable: The server cannot be reached or is overloaded.
            DeadlineExceeded: The timeout passed.
            TidemillError: Any other error of the server, with its text.
        """
        request = build_request(model, inputs, version=version, outputs=outputs, request_id=id)
        answer = self._call("ModelInfer", rpc.request_to_message(request), timeout)
        return dict(rpc.response_from_message(answer).outputs)

    def metadata(self, model: str, version: str = "") -> ModelMetadata:
        """The model's signature, versions and platform."""
        request = messages.ModelMetadataRequest(name=model, version=version)
        return rpc.metadata_from_message(self._call("ModelMetadata", request))

    def server_metadata(self) -> ServerMetadata:
        """The server's name, version and extensions."""
        return rpc.server_metadata_from_message(self._call("ServerMetadata", messages.ServerMetadataRequest()))

    def server_ready(self) -> bool:
        """Whether the server takes requests; False also if it cannot be reached."""
        try:
            return bool(self._call("ServerReady", messages.ServerReadyRequest()).ready)
        except Unavailable:
            return False

    def model_ready(self, model: str, version: str = "") -> bool:
        """Whether the model (or this version of it) takes requests; False also if the server does not know it."""
        try:
            return bool(self._call("ModelReady", messages.ModelReadyRequest(name=model, version=version)).ready)
        except _NOT_READY:
            return False

    def index(self) -> tuple[ModelIndex, ...]:
        """The model versions that the repository knows, with their states."""
        return rpc.index_from_message(self._call("RepositoryIndex", messages.RepositoryIndexRequest()))

    def close(self) -> None:
        """Close the connection."""
        self._channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _call(self, method: str, message: Any, timeout: float | None = None) -> Any:
        with _rpc_errors():
            return self._callables[method](message, timeout=timeout, metadata=self._metadata)


class AsyncGrpcClient:
    """The asyncio client of one server, with the methods and errors of `GrpcClient`.

    It connects at its first call and belongs to the event loop of that call.
    """

    def __init__(self, target: str = "localhost:8001", *, metadata: Mapping[str, str] | None = None) -> None:
        self._target = _target(target)
        self._metadata = tuple((metadata or {}).items())
        self._channel: Any = None
        self._callables: dict[str, Any] = {}

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
        """Run a model on one request; see `GrpcClient.infer`."""
        request = build_request(model, inputs, version=version, outputs=outputs, request_id=id)
        answer = await self._call("ModelInfer", rpc.request_to_message(request), timeout)
        return dict(rpc.response_from_message(answer).outputs)

    async def metadata(self, model: str, version: str = "") -> ModelMetadata:
        """The model's signature, versions and platform."""
        request = messages.ModelMetadataRequest(name=model, version=version)
        return rpc.metadata_from_message(await self._call("ModelMetadata", request))

    async def server_metadata(self) -> ServerMetadata:
        """The server's name, version and extensions."""
        return rpc.server_metadata_from_message(await self._call("ServerMetadata", messages.ServerMetadataRequest()))

    async def server_ready(self) -> bool:
        """Whether the server takes requests; False also if it cannot be reached."""
        try:
            return bool((await self._call("ServerReady", messages.ServerReadyRequest())).ready)
        except Unavailable:
            return False

    async def model_ready(self, model: str, version: str = "") -> bool:
        """Whether the model (or this version of it) takes requests; False also if the server does not know it."""
        try:
            return bool((await self._call("ModelReady", messages.ModelReadyRequest(name=model, version=version))).ready)
        except _NOT_READY:
            return False

    async def index(self) -> tuple[ModelIndex, ...]:
        """The model versions that the repository knows, with their states."""
        return rpc.index_from_message(await self._call("RepositoryIndex", messages.RepositoryIndexRequest()))

    async def aclose(self) -> None:
        """Close the connection."""
        if self._channel is not None:
            await self._channel.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def _call(self, method: str, message: Any, timeout: float | None = None) -> Any:
        if self._channel is None:
            self._channel = grpc.aio.insecure_channel(self._target, options=_OPTIONS)
            self._callables = _callables(self._channel)
        with _rpc_errors():
            return await self._callables[method](message, timeout=timeout, metadata=self._metadata)


def _target(address: str) -> str:
    return address.removeprefix("http://").removeprefix("grpc://").rstrip("/")


def _callables(channel: Any) -> dict[str, Any]:
    return {
        method.name: channel.unary_unary(
            rpc.method_path(method.name),
            request_serializer=method.request.SerializeToString,
            response_deserializer=method.response.FromString,
        )
        for method in rpc.METHODS
        if not method.streaming
    }


@contextmanager
def _rpc_errors() -> Iterator[None]:
    try:
        yield
    except grpc.RpcError as error:
        raise error_from_grpc(error.code().name, error.details() or "the server gave no text") from error
