"""The RPCs of the inference service over the server's service; knows messages and statuses, nothing of sockets."""

from __future__ import annotations

from typing import Any

import grpc

from tidemill.errors import Unsupported
from tidemill.protocol import rpc
from tidemill.protocol.metadata import format_index, format_model_metadata, format_server_metadata
from tidemill.serving.grpc.call import Answer, Context, answered, read_message, write_message
from tidemill.serving.grpc.control import ControlAnswers
from tidemill.serving.grpc.infer import Infer
from tidemill.serving.grpc.stream import Stream
from tidemill.serving.service import Service

__all__ = ["inference_handlers"]


def inference_handlers(service: Service) -> Any:
    """A generic handler for every RPC of the protocol."""
    answers = _Answers(service).by_name() | ControlAnswers(service).by_name()
    handlers = {
        method.name: grpc.stream_stream_rpc_method_handler(Stream(service).handle)
        if method.streaming
        else grpc.unary_unary_rpc_method_handler(answered(answers[method.name]))
        for method in rpc.METHODS
    }
    return grpc.method_handlers_generic_handler(rpc.SERVICE, handlers)


class _Answers:
    """The RPCs that run models and tell about them, each from the request's bytes to the response message."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def by_name(self) -> dict[str, Answer]:
        return {
            "ServerLive": self._server_live,
            "ServerReady": self._server_ready,
            "ServerMetadata": self._server_metadata,
            "ModelReady": self._model_ready,
            "ModelMetadata": self._model_metadata,
            "ModelConfig": self._model_config,
            "ModelStatistics": self._model_statistics,
            "ModelInfer": Infer(self._service).answer,
            "RepositoryIndex": self._repository_index,
        }

    async def _server_live(self, _data: bytes, _context: Context) -> Any:
        return write_message("ServerLive", live=True)

    async def _server_ready(self, _data: bytes, _context: Context) -> Any:
        return write_message("ServerReady", ready=self._service.ready)

    async def _server_metadata(self, _data: bytes, _context: Context) -> Any:
        return write_message("ServerMetadata", **format_server_metadata(self._service.server_metadata()))

    async def _model_ready(self, data: bytes, _context: Context) -> Any:
        request = read_message("ModelReady", data)
        reason = self._service.model_not_ready_reason(request.name, request.version)
        return write_message("ModelReady", ready=not reason)

    async def _model_metadata(self, data: bytes, _context: Context) -> Any:
        request = read_message("ModelMetadata", data)
        metadata = self._service.model_metadata(request.name, request.version)
        return write_message("ModelMetadata", **format_model_metadata(metadata))

    async def _model_config(self, data: bytes, _context: Context) -> Any:
        request = read_message("ModelConfig", data)
        config = self._service.model_config(request.name, request.version)
        return rpc.document_to_message("ModelConfigResponse", {"config": config})

    async def _model_statistics(self, data: bytes, _context: Context) -> Any:
        request = read_message("ModelStatistics", data)
        statistics = self._service.statistics(request.name, request.version)
        return rpc.document_to_message("ModelStatisticsResponse", {"model_stats": statistics})

    async def _repository_index(self, data: bytes, _context: Context) -> Any:
        request = read_message("RepositoryIndex", data)
        if request.repository_name:
            raise Unsupported("repositories have no names here; leave repository_name empty")
        return write_message("RepositoryIndex", models=format_index(self._service.index(request.ready)))
