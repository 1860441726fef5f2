"""grpc.health.v1, for the server and for single models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tidemill.protocol import rpc
from tidemill.protocol.control import LoadParameters

_Status = health_pb2.HealthCheckResponse


@pytest.mark.parametrize("service", ["", rpc.SERVICE, "grpc.health.v1.Health", "two"])
async def test_check(all_models: Path, start_server: Any, service: str) -> None:
    server = await start_server(all_models, load=False)
    async with grpc.aio.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel:
        health = health_pb2_grpc.HealthStub(channel)
        request = health_pb2.HealthCheckRequest(service=service)
        assert (await health.Check(request)).status == _Status.NOT_SERVING
        await server.load()
        assert (await health.Check(request)).status == _Status.SERVING


async def test_what_is_unknown(all_models: Path, start_server: Any) -> None:
    server = await start_server(all_models, load=False)
    async with grpc.aio.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel:
        health = health_pb2_grpc.HealthStub(channel)
        request = health_pb2.HealthCheckRequest(service="nobody")
        with pytest.raises(grpc.aio.AioRpcError, match="there is no model 'nobody'"):
            await health.Check(request)
        watch = health.Watch(request)
        assert (await watch.read()).status == _Status.SERVICE_UNKNOWN
        watch.cancel()


async def test_a_watch_follows_one_model(all_models: Path, start_server: Any) -> None:
    server = await start_server(all_models, load=False)
    async with grpc.aio.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel:
        watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest(service="two"))
        assert (await watch.read()).status == _Status.NOT_SERVING
        await server.load()
        assert (await watch.read()).status == _Status.SERVING
        await server.service.control.unload("two")
        assert (await watch.read()).status == _Status.NOT_SERVING
        await server.service.control.load("two", LoadParameters())
        assert (await watch.read()).status == _Status.SERVING
        watch.cancel()
