"""The RPCs of the inference service over the server's service; knows messages and statuses, nothing of sockets."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import grpc
from google.protobuf.message import DecodeError

from tidemill.errors import InvalidArgument, TidemillError, Unsupported
from tidemill.protocol import rpc
from tidemill.protocol.metadata import format_index, format_model_metadata, format_server_metadata
from tidemill.protocol.status import status_of
from tidemill.serving.service import Service

__all__ = ["inference_handlers"]

_LOG = logging.getLogger("tidemill.grpc")

Context: TypeAlias = Any
Answer: TypeAlias = Callable[[bytes, Context], Awaitable[Any]]


def inference_handlers(service: Service) -> Any:
    """A generic handler for every RPC of the protocol; those that are not offered say so."""
    answers = _Answers(service).by_name()
    handlers = {}
    for method in rpc.METHODS:
        answer = answers.get(method.name, _not_offered(method.name))
        if method.streaming:
            handlers[method.name] = grpc.stream_stream_rpc_method_handler(_refused_stream(answer))
        else:
            handlers[method.name] = grpc.unary_unary_rpc_method_handler(_answered(answer))
    return grpc.method_handlers_generic_handler(rpc.SERVICE, handlers)


class _Answers:
    """The offered RPCs, each from the request's bytes to the response message."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def by_name(self) -> dict[str, Answer]:
        return {
            "ServerLive": self._server_live,
            "ServerReady": self._server_ready,
            "ServerMetadata": self._server_metadata,
            "ModelReady": self._model_ready,
            "ModelMetadata": self._model_metadata,
            "ModelInfer": self._model_infer,
            "RepositoryIndex": self._repository_index,
        }

    async def _server_live(self, _data: bytes, _context: Context) -> Any:
        return _response("ServerLive", live=True)

    async def _server_ready(self, _data: bytes, _context: Context) -> Any:
        return _response("ServerReady", ready=self._service.ready)

    async def _server_metadata(self, _data: bytes, _context: Context) -> Any:
        return _response("ServerMetadata", **format_server_metadata(self._service.server_metadata()))

    async def _model_ready(self, data: bytes, _context: Context) -> Any:
        request = _request("ModelReady", data)
        reason = self._service.model_not_ready_reason(request.name, request.version)
        return _response("ModelReady", ready=not reason)

    async def _model_metadata(self, data: bytes, _context: Context) -> Any:
        request = _request("ModelMetadata", data)
        metadata = self._service.model_metadata(request.name, request.version)
        return _response("ModelMetadata", **format_model_metadata(metadata))

    async def _model_infer(self, data: bytes, context: Context) -> Any:
        request = self._parsed_infer(data)
        with self._service.track("grpc", request.model_name, request.model_version):
            response = await self._service.infer(rpc.request_from_message(request), context.time_remaining())
            return rpc.response_to_message(response)

    async def _repository_index(self, data: bytes, _context: Context) -> Any:
        request = _request("RepositoryIndex", data)
        if request.repository_name:
            raise Unsupported("repositories have no names here; leave repository_name empty")
        return _response("RepositoryIndex", models=format_index(self._service.index(request.ready)))

    def _parsed_infer(self, data: bytes) -> Any:
        try:
            return _request("ModelInfer", data)
        except InvalidArgument as error:
            self._service.metrics.unknown.on_request("grpc", error.code, 0.0)
            raise


_METHODS = {method.name: method for method in rpc.METHODS}


def _request(method: str, data: bytes) -> Any:
    try:
        return _METHODS[method].request.FromString(data)
    except DecodeError as error:
        raise InvalidArgument(f"the request is no {method}Request: {error}") from None


def _response(method: str, **fields: Any) -> Any:
    return _METHODS[method].response(**fields)


def _answered(answer: Answer) -> Callable[[bytes, Context], Awaitable[bytes]]:
    async def handle(data: bytes, context: Context) -> bytes:
        try:
            message = await answer(data, context)
            return bytes(message.SerializeToString())
        except TidemillError as error:
            code, text = grpc.StatusCode[status_of(error).grpc], str(error)
        except Exception as error:
            _LOG.error("a request failed unexpectedly", exc_info=error)
            code, text = grpc.StatusCode.INTERNAL, "internal error; the server's log has the details"
        await context.abort(code, text)
        raise AssertionError("abort always raises")

    return handle


def _refused_stream(answer: Answer) -> Callable[[Any, Context], Awaitable[None]]:
    unary = _answered(answer)

    async def handle(_requests: Any, context: Context) -> None:
        await unary(b"", context)

    return handle


def _not_offered(name: str) -> Answer:
    async def answer(_data: bytes, _context: Context) -> Any:
        raise Unsupported(f"this server does not offer {name}")

    return answer
