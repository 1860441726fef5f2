"""The least an HTTP server can do: parse the request, answer with fixed bytes. Shows what the client itself can drive.

Usage: floor.py PORT REPLY_BYTES
"""

from __future__ import annotations

import asyncio
import sys
from typing import cast

import httptools
import uvloop


class Floor(asyncio.Protocol):
    def __init__(self, reply: bytes) -> None:
        self._reply = reply
        self._parser = httptools.HttpRequestParser(self)
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_message_complete(self) -> None:
        assert self._transport is not None
        self._transport.write(self._reply)


async def serve(port: int, length: int) -> None:
    reply = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (length, bytes(length))
    server = await asyncio.get_running_loop().create_server(lambda: Floor(reply), "127.0.0.1", port)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1]), int(sys.argv[2])))
