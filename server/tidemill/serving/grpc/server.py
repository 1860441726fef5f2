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
from tidemill.serving.certificates import Certificates, Pem
from tidemill.serving.grpc.guard import Guard
from tidemill.serving.grpc.health import HEALTH_SERVICE, add_health
from tidemill.serving.grpc.methods import inference_handlers
from tidemill.serving.keys import KeyRing
from tidemill.serving.service import Service

__all__ = ["bind", "create_server"]


def create_server(service: Service, ring: KeyRing | None = None) -> Any:
    """A server with inference, health and reflection; it still has to be bound and started.

    Args:
        service: What answers.
        ring: The keys that callers need; None if they need none.
    """
    guards = (Guard(ring, service.metrics),) if ring else ()
    server = grpc.aio.server(interceptors=guards, options=_options(service.config.max_request_bytes))
    server.add_generic_rpc_handlers((inference_handlers(service),))
    add_health(service, server)
    names = (rpc.SERVICE, HEALTH_SERVICE, reflection.SERVICE_NAME)
    reflection.enable_server_reflection(names, server, pool=_reflected())
    return server


def bind(server: Any, host: str, port: int, certificates: Certificates | None = None) -> int:
    """Listen on an address and return its port; encrypted if there are certificates.

    Raises:
        ConfigError: The address cannot be taken.
    """
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    try:
        if certificates is None:
            return int(server.add_insecure_port(address))
        return int(server.add_secure_port(address, _credentials(certificates)))
    except RuntimeError:
        raise ConfigError(f"cannot listen on {address} for gRPC (grpc_port); is something else listening?") from None


def _credentials(certificates: Certificates) -> Any:
    """Those of the moment for every new connection."""
    used = certificates.pem

    def renewed() -> Any:
        nonlocal used
        if certificates.pem is used:
            return None
        used = certificates.pem
        return _configuration(used)

    return grpc.dynamic_ssl_server_credentials(
        _configuration(used), renewed, require_client_authentication=used.clients is not None
    )


def _configuration(pem: Pem) -> Any:
    return grpc.ssl_server_certificate_configuration([(pem.key, pem.chain)], pem.clients)


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
