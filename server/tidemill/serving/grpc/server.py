"""The gRPC face as a server on the running event loop; knows the service and the names of its own services."""

from __future__ import annotations

from typing import Any

import grpc
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from grpc_health.v1 import health_pb2  # type: ignore[import-untyped]
from grpc_reflection.v1alpha import reflection, reflection_pb2  # type: ignore[import-untyped]

from tidemill.errors import ConfigError
from tidemill.protocol import messages, rpc
from tidemill.serving.grpc.health import HEALTH_SERVICE, add_health
from tidemill.serving.grpc.methods import inference_handlers
from tidemill.serving.service import Service

__all__ = ["bind", "create_server"]


def create_server(service: Service) -> Any:
    """A server with inference, health and reflection; it still has to be bound and started."""
    server = grpc.aio.server(options=_options(service.config.max_request_bytes))
    server.add_generic_rpc_handlers((inference_handlers(service),))
    add_health(service, server)
    names = (rpc.SERVICE, HEALTH_SERVICE, reflection.SERVICE_NAME)
    reflection.enable_server_reflection(names, server, pool=_reflected())
    return server


def bind(server: Any, host: str, port: int) -> int:
    """Listen on an address and return its port.

    Raises:
        ConfigError: The address cannot be taken.
    """
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    try:
        return int(server.add_insecure_port(address))
    except RuntimeError:
        raise ConfigError(f"cannot listen on {address} for gRPC (grpc_port); is something else listening?") from None


def _options(max_request_bytes: int) -> list[tuple[str, int]]:
    return [
        ("grpc.max_receive_message_length", max_request_bytes),
        ("grpc.max_send_message_length", -1),
        # Two servers on one port would share its connections without a word.
        ("grpc.so_reuseport", 0),
    ]


def _reflected() -> Any:
    """One pool with the files of all services: inference has a private pool, the others are in the default one."""
    pool = DescriptorPool()
    inference = messages.POOL.FindFileContainingSymbol(rpc.SERVICE)
    for file in (inference, health_pb2.DESCRIPTOR, reflection_pb2.DESCRIPTOR):
        proto = FileDescriptorProto()
        file.CopyToProto(proto)
        pool.Add(proto)
    return pool
