"""Bodies: read within a limit, decompressed within the same limit, compressed when the caller takes it."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Callable, Sequence
from typing import TypeAlias

from starlette.types import Receive

from tidemill.errors import Cancelled, InvalidArgument, TooLarge, UnsupportedEncoding

__all__ = ["Buffer", "choose_encoding", "compress", "decompress", "read_body"]

Buffer: TypeAlias = bytes | bytearray | memoryview

# zlib's window bits: 31 writes and reads gzip's frame, 15 the zlib frame that HTTP calls deflate.
_WINDOW_BITS = {"gzip": 31, "deflate": 15}
# Tensors hardly compress; the fastest level wins more on the processor than the others do on the wire.
_LEVEL = 1
_OFFLOAD_BYTES = 256 << 10


async def read_body(receive: Receive, limit: int) -> bytes | bytearray:
    """Read a request's body.

    Args:
        receive: The ASGI channel.
        limit: The most bytes to take.

    Raises:
        TooLarge: The body is longer than `limit`.
        Cancelled: The client went away before the body was complete.
    """
    message = await receive()
    body: bytes | bytearray = message.get("body", b"")
    if message.get("more_body", False):
        body = bytearray(body)
    while True:
        if message["type"] == "http.disconnect":
            raise Cancelled("the client closed the connection before its request was complete")
        if len(body) > limit:
            raise TooLarge(f"the request's body is over the limit of {limit} bytes (max_request_bytes)")
        if not message.get("more_body", False):
            return body
        message = await receive()
        body += message.get("body", b"")


async def decompress(body: bytes | bytearray, encoding: str, limit: int) -> Buffer:
    """Undo a Content-Encoding.

    Args:
        body: The body as received.
        encoding: The header's value: "", "identity", "gzip" or "deflate".
        limit: The most bytes that may come out.

    Raises:
        UnsupportedEncoding: Any other encoding, or several.
        TooLarge: More than `limit` bytes would come out.
        InvalidArgument: The stream is damaged, cut short or followed by other bytes.
    """
    name = encoding.strip().lower()
    if name in ("", "identity"):
        return body
    if name not in _WINDOW_BITS:
        raise UnsupportedEncoding(f"content encoding {encoding!r} is not spoken; use gzip, deflate or identity")
    return await _offload(lambda: _inflate(body, name, limit), len(body))


async def compress(buffers: Sequence[Buffer], encoding: str) -> list[Buffer]:
    """Apply a Content-Encoding ("gzip" or "deflate") to the concatenation of `buffers`."""
    size = sum(memoryview(buffer).nbytes for buffer in buffers)
    return [await _offload(lambda: _deflate(buffers, encoding), size)]


def choose_encoding(accepted: str) -> str:
    """The encoding of the answer by the Accept-Encoding header: "gzip", "deflate" or "identity".

    The highest quality wins and the first among equals, as in Triton; what cannot be understood counts as identity.
    """
    best, best_quality = "identity", 0.0
    for part in accepted.split(","):
        name, _, parameters = part.strip().lower().partition(";")
        quality = _quality(parameters)
        if name.strip() in (*_WINDOW_BITS, "identity") and quality > best_quality:
            best, best_quality = name.strip(), quality
    return best


def _quality(parameters: str) -> float:
    key, _, value = parameters.strip().partition("=")
    if not key:
        return 1.0
    try:
        return float(value) if key.strip() == "q" else 1.0
    except ValueError:
        return 0.0


def _inflate(body: bytes | bytearray, encoding: str, limit: int) -> bytes:
    stream = zlib.decompressobj(_WINDOW_BITS[encoding])
    try:
        # One byte over the limit is enough to know, and all that a bomb gets.
        plain = stream.decompress(body, limit + 1)
    except zlib.error as error:
        raise InvalidArgument(f"the body is not valid {encoding}: {error}") from None
    if len(plain) > limit:
        raise TooLarge(f"the decompressed body is over the limit of {limit} bytes (max_request_bytes)")
    if not stream.eof:
        raise InvalidArgument(f"the body's {encoding} stream is cut short after {len(body)} bytes")
    if stream.unused_data:
        raise InvalidArgument(f"{len(stream.unused_data)} bytes follow the end of the body's {encoding} stream")
    return plain


def _deflate(buffers: Sequence[Buffer], encoding: str) -> bytes:
    stream = zlib.compressobj(_LEVEL, wbits=_WINDOW_BITS[encoding])
    return b"".join([*(stream.compress(buffer) for buffer in buffers), stream.flush()])


async def _offload(work: Callable[[], bytes], size: int) -> bytes:
    if size < _OFFLOAD_BYTES:
        return work()
    return await asyncio.to_thread(work)
