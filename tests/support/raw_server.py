"""A server whose every byte a test decides."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress

__all__ = ["Handle", "raw_server"]

Handle = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@contextmanager
def raw_server(handle: Handle) -> Iterator[int]:
    """The port of a server, in a thread of its own, that gives each connection to `handle`."""
    started = threading.Event()
    state: dict[str, object] = {}

    async def run() -> None:
        stopped, tasks = asyncio.Event(), set()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            tasks.add(asyncio.current_task())
            try:
                await handle(reader, writer)
            except (asyncio.CancelledError, ConnectionError, asyncio.IncompleteReadError):
                pass
            finally:
                writer.close()
                with suppress(ConnectionError):
                    await writer.wait_closed()

        listener = await asyncio.start_server(serve, "127.0.0.1", 0)
        state.update(port=listener.sockets[0].getsockname()[1], loop=asyncio.get_running_loop(), stop=stopped.set)
        started.set()
        await stopped.wait()
        listener.close()
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    thread = threading.Thread(target=lambda: asyncio.run(run()))
    thread.start()
    assert started.wait(10)
    try:
        yield state["port"]  # type: ignore[misc]
    finally:
        state["loop"].call_soon_threadsafe(state["stop"])  # type: ignore[attr-defined]
        thread.join()
