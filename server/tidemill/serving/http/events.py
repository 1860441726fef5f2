"""Server-sent events as they come, as long as somebody is there to read them; knows nothing of what they hold."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

from starlette.types import Receive, Send

from tidemill.errors import Cancelled

__all__ = ["send_events"]

_HEADERS = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-cache")]


async def send_events(
    events: AsyncGenerator[bytes, None], receive: Receive, send: Send, *, done: bytes | None = None
) -> None:
    """Send every event; nothing is sent before the first is there, so that what fails before can be told by a status.

    Args:
        events: What is sent; closed as soon as the client goes away.
        receive: The ASGI channel, by which the client's going is told.
        send: The ASGI channel.
        done: One more event for the end; None for none.

    Raises:
        Cancelled: The client went away.
    """
    leaving = asyncio.ensure_future(_left(receive))
    started = False
    try:
        while (event := await _next(events, leaving)) is not None:
            if not started:
                await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
                started = True
            await _send(send, event)
        if done is not None:
            await _send(send, done)
        await send({"type": "http.response.body", "body": b""})
    finally:
        leaving.cancel()
        # Not left to the garbage collector: whoever makes the events is to stop now.
        await events.aclose()


async def _next(events: AsyncGenerator[bytes, None], leaving: asyncio.Future[None]) -> bytes | None:
    coming = asyncio.ensure_future(anext(events, None))
    try:
        await asyncio.wait((coming, leaving), return_when=asyncio.FIRST_COMPLETED)
        if not coming.done():
            raise Cancelled("the client closed the connection before its text was whole")
        return coming.result()
    finally:
        if not coming.done():
            coming.cancel()
            # The generator lets go of its texts before anybody else goes on.
            await asyncio.wait((coming,))


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        continue


async def _send(send: Send, data: bytes) -> None:
    await send({"type": "http.response.body", "body": b"data: " + data + b"\n\n", "more_body": True})
