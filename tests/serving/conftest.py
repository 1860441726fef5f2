"""Whole servers in the test's own event loop, on free ports of 127.0.0.1."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio

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


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared_server(all_models: Path) -> AsyncIterator[Server]:
    """One server with every kind of model for all tests of a module whose loop scope is the module."""
    server = Server([all_models], ServerConfig(http_port=0, grpc_port=0, max_request_bytes=1 << 20))
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
