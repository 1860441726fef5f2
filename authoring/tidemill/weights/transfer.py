"""A large object read as parts side by side; knows neither stores nor files, only how to read and where to put."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait

__all__ = ["PART_BYTES", "Put", "transfer"]

PART_BYTES = 8 * 1024 * 1024
_CONNECTIONS = 8

Put = Callable[[int, memoryview], None]


def transfer(read: Callable[[int, int], memoryview], put: Put, span: tuple[int, int]) -> None:
    """Read a span of bytes in parts, several at one time; the first failure ends it.

    Args:
        read: The bytes from an offset, of a length.
        put: Takes the bytes of a part and the offset at which it begins; called from several threads.
        span: The first byte and the end.
    """

    def move(offset: int) -> None:
        put(offset, read(offset, min(PART_BYTES, span[1] - offset)))

    pool = ThreadPoolExecutor(_CONNECTIONS, thread_name_prefix="tidemill-transfer")
    try:
        moves = [pool.submit(move, offset) for offset in range(*span, PART_BYTES)]
        done, _ = wait(moves, return_when=FIRST_EXCEPTION)
        for finished in done:
            finished.result()
    finally:
        pool.shutdown(cancel_futures=True)
