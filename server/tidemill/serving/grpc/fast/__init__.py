"""The fast lane of the gRPC face: HTTP/2 spoken here, inference answered here, all else handed to grpcio."""

from __future__ import annotations

from tidemill.serving.grpc.fast.lane import GrpcLane

__all__ = ["GrpcLane"]
