"""The least that grpcio's servers can do: answer every call with the same bytes, without reading the request.

Usage: grpc_floor.py aio|sync PORT REPLY_BYTES
"""

from __future__ import annotations

import asyncio
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import uvloop

_THREADS = 4


class _Echo(grpc.GenericRpcHandler):  # type: ignore[misc]
    def __init__(self, handler: Any) -> None:
        self._handler = grpc.unary_unary_rpc_method_handler(handler)

    def service(self, _details: Any) -> Any:
        return self._handler


async def _serve_aio(address: str, reply: bytes) -> None:
    async def answer(_request: bytes, _context: Any) -> bytes:
        return reply

    server = grpc.aio.server()
    server.add_generic_rpc_handlers((_Echo(answer),))
    server.add_insecure_port(address)
    await server.start()
    await server.wait_for_termination()


def _serve_sync(address: str, reply: bytes) -> None:
    server = grpc.server(ThreadPoolExecutor(_THREADS))
    server.add_generic_rpc_handlers((_Echo(lambda _request, _context: reply),))
    server.add_insecure_port(address)
    server.start()
    server.wait_for_termination()


def main() -> None:
    kind, address, reply = sys.argv[1], f"127.0.0.1:{sys.argv[2]}", bytes(int(sys.argv[3]))
    if kind == "aio":
        asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())
        asyncio.run(_serve_aio(address, reply))
    else:
        _serve_sync(address, reply)


if __name__ == "__main__":
    main()
