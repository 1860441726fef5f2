"""Whole servers in the test's own event loop, on free ports of 127.0.0.1."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import onnx
import pytest
import pytest_asyncio
from onnx import helper

from tidemill.bundle import Bundle, GraphPart
from tidemill.dtype import DType
from tidemill.protocol import TensorSpec
from tidemill.serving import Server, ServerConfig

StartServer = Callable[..., Awaitable[Server]]


@pytest.fixture
async def start_server() -> AsyncIterator[StartServer]:
    """Starts servers and loads their models; those still running at the end of the test are stopped."""
    running: list[Server] = []

    async def start(*repositories: Path, load: bool = True, **settings: Any) -> Server:
        server = Server(repositories, ServerConfig(http_port=0, grpc_port=0, **settings))
        await server.start()
        running.append(server)
        if load:
            await server.load()
        return server

    yield start
    for server in running:
        await server.stop()


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=[True, False], ids=["fast lane", "normal lane"])
async def shared_server(all_models: Path, request: pytest.FixtureRequest) -> AsyncIterator[Server]:
    """One server with every kind of model for all tests of a module whose loop scope is the module.

    Each test runs twice: with the fast lanes of REST and gRPC and without them, for they must not differ.
    """
    lanes = {"http_fast_lane": request.param, "grpc_fast_lane": request.param}
    config = ServerConfig(http_port=0, grpc_port=0, max_request_bytes=1 << 20, **lanes)
    server = Server([all_models], config)
    await server.start()
    await server.load()
    yield server
    await server.stop()


@pytest.fixture
async def connect() -> AsyncIterator[Callable[[Server], httpx.AsyncClient]]:
    """Opens httpx clients for servers."""
    clients: list[httpx.AsyncClient] = []

    def connect(server: Server) -> httpx.AsyncClient:
        clients.append(httpx.AsyncClient(base_url=f"http://127.0.0.1:{server.http_port}", timeout=60))
        return clients[-1]

    yield connect
    for client in clients:
        await client.aclose()


@pytest.fixture(scope="session")
def identity_models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model for every element type that answers what it was sent: `identity_<DType>`, x to y, of shape [n, k]."""
    repository = tmp_path_factory.mktemp("identities")
    for dtype in DType:
        inputs, outputs = (TensorSpec(name, dtype, ("n", "k")) for name in "xy")
        infos = [helper.make_tensor_value_info(spec.name, dtype.onnx, ["n", "k"]) for spec in (inputs, outputs)]
        node = helper.make_node("Identity", ["x"], ["y"])
        graph = helper.make_graph([node], "main", infos[:1], infos[1:])
        model: onnx.ModelProto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
        part = GraphPart(model, (inputs,), (outputs,))
        Bundle("identity", {"main": part}).write(repository / f"identity_{dtype.name}" / "1")
    return repository


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def open_server(all_models: Path, identity_models: Path) -> AsyncIterator[Server]:
    """One server with every model, on which everything is allowed that is off by default."""
    config = ServerConfig(http_port=0, grpc_port=0, system_shared_memory=True, model_control="explicit")
    server = Server([all_models, identity_models], config)
    await server.start()
    await server.load()
    yield server
    await server.stop()
