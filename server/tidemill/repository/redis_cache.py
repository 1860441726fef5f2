"""Answers kept in a Redis server, which several servers share; that server says what it gives up when it is full.

A cache that cannot be reached costs nothing but the answers that it might have had: the model is run, and the log says
so once until it is back.
"""

from __future__ import annotations

import asyncio
import json
import logging
import struct
import time
from collections.abc import Callable
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import RedisError

from tidemill.dtype import DType
from tidemill.errors import InvalidArgument
from tidemill.protocol.tensors import from_bytes, to_bytes
from tidemill.repository.response_cache import Note, Outputs, Run

__all__ = ["RedisCache"]

_PREFIX = b"tidemill:1:"
_LENGTH = struct.Struct("<I")
_SECONDS = 0.25
"""How long to wait for Redis: longer than that, running the model is the surer way."""
_LOG = logging.getLogger("tidemill.repository")


class RedisCache:
    """A cache in Redis; belongs to one event loop."""

    def __init__(self, url: str, clock: Callable[[], float] = time.perf_counter) -> None:
        """Set up; nothing is connected yet.

        Args:
            url: redis://host:port/db, rediss://..., unix://...
            clock: Seconds.

        Raises:
            ValueError: The URL is malformed.
        """
        self._redis: Redis = Redis.from_url(url, socket_timeout=_SECONDS, socket_connect_timeout=_SECONDS)
        self._clock = clock
        self._lost = False
        self._storing: set[asyncio.Task[None]] = set()

    def answer(self, key: bytes, run: Run, note: Note) -> asyncio.Future[Outputs]:
        """See `ResponseCache.answer`."""
        return asyncio.ensure_future(self._answer(_PREFIX + key, run, note))

    async def close(self) -> None:
        """See `ResponseCache.close`."""
        await asyncio.gather(*self._storing)
        await self._redis.aclose()

    async def _answer(self, key: bytes, run: Run, note: Note) -> Outputs:
        began = self._clock()
        found = await self._get(key)
        seconds = self._clock() - began
        if found is not None:
            note(True, seconds)
            return found
        note(False, seconds)
        outputs = await run()
        storing = asyncio.ensure_future(self._put(key, outputs))
        self._storing.add(storing)
        storing.add_done_callback(self._storing.discard)
        return outputs

    async def _get(self, key: bytes) -> Outputs | None:
        try:
            kept: Any = await self._redis.get(key)
        except (RedisError, OSError) as error:
            self._tell(error)
            return None
        self._lost = False
        return None if kept is None else _read(kept)

    async def _put(self, key: bytes, outputs: Outputs) -> None:
        try:
            await self._redis.set(key, _write(outputs))
        except (RedisError, OSError) as error:
            self._tell(error)

    def _tell(self, error: Exception) -> None:
        if not self._lost:
            _LOG.warning("the response cache in Redis does not answer, so models are run: %s", error)
        self._lost = True


def _write(outputs: Outputs) -> bytes:
    """Length of the head, the head as JSON, then each tensor's bytes as the protocol has them."""
    head, bodies = [], []
    for name, array in outputs.items():
        dtype = DType.from_numpy(array.dtype)
        bodies.append(to_bytes(array, dtype, name=name))
        head.append([name, dtype.wire, array.shape, len(bodies[-1])])
    described = json.dumps(head).encode()
    return b"".join([_LENGTH.pack(len(described)), described, *bodies])


def _read(kept: bytes) -> Outputs | None:
    """None if these are not the bytes of answers."""
    try:
        end = _LENGTH.size + _LENGTH.unpack_from(kept)[0]
        outputs = {}
        for name, wire, shape, length in json.loads(kept[_LENGTH.size : end]):
            outputs[name] = from_bytes(memoryview(kept)[end : end + length], DType.from_wire(wire), shape, name=name)
            end += length
        return outputs
    except (ValueError, TypeError, struct.error, InvalidArgument):
        return None
