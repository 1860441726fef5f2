"""tritonclient's four clients behind one way to call them, so that each test judges all of them."""

from __future__ import annotations

import asyncio
import gc
import inspect
import warnings
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from types import ModuleType
from typing import Any

import tritonclient.grpc as grpc_sync
import tritonclient.grpc.aio as grpc_aio
import tritonclient.http as http_sync
import tritonclient.http.aio as http_aio

from tidemill.serving import Server

CLIENTS: dict[str, ModuleType] = {
    "http": http_sync,
    "http.aio": http_aio,
    "grpc": grpc_sync,
    "grpc.aio": grpc_aio,
}


class Triton:
    """One client of one server; every method of the real client can be awaited, and answers plain JSON values."""

    def __init__(self, kind: str, client: Any, thread: ThreadPoolExecutor) -> None:
        self.module = CLIENTS[kind]
        self.is_http = kind.startswith("http")
        self._client = client
        self._thread = thread

    async def __call__(self, method: str, *args: Any, **options: Any) -> Any:
        function = getattr(self._client, method)
        if "as_json" in inspect.signature(function).parameters:
            options["as_json"] = True
        if inspect.iscoroutinefunction(function):
            answer = await function(*args, **options)
            if method.startswith("is_"):
                _let_go_of_answers_unread()
            return answer
        return await asyncio.get_running_loop().run_in_executor(self._thread, partial(function, *args, **options))

    async def infer(self, model: str, *inputs: Any, **options: Any) -> Any:
        return await self("infer", model, list(inputs), **options)

    def input(self, name: str, array: Any, datatype: str, *, binary: bool = True) -> Any:
        tensor = self.module.InferInput(name, list(array.shape), datatype)
        if self.is_http:
            return tensor.set_data_from_numpy(array, binary_data=binary)
        return tensor.set_data_from_numpy(array)

    def output(self, name: str, *, binary: bool = True, **options: Any) -> Any:
        if self.is_http:
            return self.module.InferRequestedOutput(name, binary_data=binary, **options)
        return self.module.InferRequestedOutput(name, **options)


def _let_go_of_answers_unread() -> None:
    """The client's aio health calls look at the status only, and aiohttp warns of connections that were not read."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@asynccontextmanager
async def open_triton(kind: str, server: Server) -> AsyncIterator[Triton]:
    """Connect one of the four clients to a server in this process."""
    port = server.http_port if kind.startswith("http") else server.grpc_port
    open_client, loop = CLIENTS[kind].InferenceServerClient, asyncio.get_running_loop()
    # The blocking HTTP client belongs to the thread that made it, the others to the loop.
    with ThreadPoolExecutor(1) as thread:
        if kind.endswith("aio"):
            async with open_client(f"127.0.0.1:{port}") as client:
                yield Triton(kind, client, thread)
        else:
            client = await loop.run_in_executor(thread, open_client, f"127.0.0.1:{port}")
            yield Triton(kind, client, thread)
            await loop.run_in_executor(thread, client.close)
