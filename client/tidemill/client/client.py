"""The blocking client: plain calls over either wire; the questions and their answers are the core's."""

from __future__ import annotations

import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

from tidemill.client.attempts import Attempts, Policy
from tidemill.client.call import Call
from tidemill.client.connect import open_transport, open_wire, settle
from tidemill.client.feed import InferOptions, build_policy, build_request
from tidemill.client.model import check_inputs, check_outputs
from tidemill.client.settings import Settings
from tidemill.errors import InvalidArgument, NotFound, TidemillError, Unavailable
from tidemill.protocol.index import ModelIndex
from tidemill.protocol.types import Array, ModelMetadata, ServerMetadata

__all__ = ["Client", "Model", "named"]

T = TypeVar("T")
# Triton answers INVALID_ARGUMENT for a model that it does not know.
NOT_READY = (Unavailable, NotFound, InvalidArgument)


class Client:
    """A blocking client of one server. Threads may share it; connections are kept and reused.

    Args:
        url: `http://HOST:PORT`, `https://`, `grpc://` or `grpcs://`; by default what the settings say.
        headers: Sent with every request, as HTTP headers or gRPC metadata.
        settings: Keys, certificates, time limits; by default what the environment says (`Settings.from_environment`).

    Example:
        >>> with Client("http://localhost:8000") as client:
        ...     outputs = client.infer("mlp", {"x": np.zeros((1, 5), np.float32)})
    """

    def __init__(
        self, url: str = "", *, headers: Mapping[str, str] | None = None, settings: Settings | None = None
    ) -> None:
        self._settings, address = settle(url, headers, settings)
        self.url = str(address)
        self._wire = open_wire(address, self._settings)
        self._transport = open_transport(address, self._settings)
        self._policy = Policy(self._settings.timeout, self._settings.retries, repeatable=True)
        self._once = Policy(self._settings.timeout)

    def infer(self, model: str, inputs: Mapping[str, Any], **options: Unpack[InferOptions]) -> dict[str, Array]:
        """Run a model on one request.

        Args:
            model: The served model's name.
            inputs: Arrays by input name, in any memory layout and byte order, objects of DLPack in host memory, or
                lists. They are sent with the dtype that they have. Text goes as BYTES: `str` as UTF-8, `bytes` as they
                are; use lists or object arrays where trailing zero bytes matter, for numpy drops them from "S" and "U".
            **options: See `InferOptions`.

        Returns:
            Arrays by output name. BYTES outputs are object arrays of `bytes`.

        Raises:
            InvalidArgument: The inputs are no tensors, or the server refuses them.
            NotFound: The server has no such model or version.
            Unavailable: The server cannot be reached or is overloaded.
            DeadlineExceeded: The timeout passed.
            TidemillError: Any other error of the server, with its text and the request's id.
        """
        policy = build_policy(options, self._settings)
        call = self._wire.infer(build_request(model, inputs, options, policy.timeout))
        try:
            return self._send(call, policy)
        except TidemillError as error:
            raise named(error, options.get("id", "")) from error.__cause__

    def model(self, name: str, version: str = "") -> Model:
        """A model whose inputs are checked before they are sent; asks the server for its signature once."""
        return Model(self, self.metadata(name, version), version)

    def metadata(self, model: str, version: str = "") -> ModelMetadata:
        """The model's signature, versions and platform."""
        return self._send(self._wire.metadata(model, version), self._policy)

    def server_metadata(self) -> ServerMetadata:
        """The server's name, version and extensions."""
        return self._send(self._wire.server_metadata(), self._policy)

    def server_ready(self) -> bool:
        """Whether the server takes requests; False also if it cannot be reached."""
        try:
            return self._send(self._wire.ready("", ""), self._once)
        except Unavailable:
            return False

    def model_ready(self, model: str, version: str = "") -> bool:
        """Whether the model (or this version of it) takes requests; False also if the server does not know it."""
        try:
            return self._send(self._wire.ready(model, version), self._once)
        except NOT_READY:
            return False

    def index(self) -> tuple[ModelIndex, ...]:
        """The model versions that the repository knows, with their states."""
        return self._send(self._wire.index(), self._policy)

    def close(self) -> None:
        """Close the connections."""
        self._transport.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _send(self, call: Call[T], policy: Policy) -> T:
        attempts = Attempts(policy)
        while True:
            try:
                return call.read(self._transport.send(call, attempts.left()))
            except Unavailable as error:
                delay = attempts.delay(error)
            time.sleep(delay)


class Model:
    """One model of a server: names, dtypes and shapes are checked against its signature before anything is sent.

    Attributes:
        metadata: The signature, as the server told it.
    """

    def __init__(self, client: Client, metadata: ModelMetadata, version: str = "") -> None:
        self.metadata = metadata
        self._client = client
        self._version = version

    def infer(self, inputs: Mapping[str, Any], **options: Unpack[InferOptions]) -> dict[str, Array]:
        """See `Client.infer`."""
        arrays = check_inputs(self.metadata, inputs)
        check_outputs(self.metadata, options.get("outputs", ()))
        options.setdefault("version", self._version)
        return self._client.infer(self.metadata.name, arrays, **options)


def named(error: TidemillError, request_id: str) -> TidemillError:
    """The error with the request's id in its text."""
    if not request_id or repr(request_id) in str(error):
        return error
    return type(error)(f"{error} (request {request_id!r})")
