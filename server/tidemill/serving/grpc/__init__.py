"""The gRPC face."""

from __future__ import annotations

from tidemill.serving.grpc.server import bind, create_server

__all__ = ["bind", "create_server"]
