"""One request that waits for its run; knows nothing of queues, threads or models."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from tidemill.errors import InvalidArgument

if TYPE_CHECKING:
    from tidemill.batching.run import Run

__all__ = ["Array", "Feed", "Key", "Pending", "batch_key"]

Array: TypeAlias = npt.NDArray[Any]
Feed: TypeAlias = Mapping[str, Array]
Key: TypeAlias = tuple[tuple[str, np.dtype[Any], tuple[int, ...]], ...]

_VARYING = -1


@dataclass(slots=True, eq=False)
class Pending:
    """A request on its way through the queue; equal only to itself.

    Attributes:
        feed: Input arrays by name.
        rows: The size of axis 0 that all inputs share.
        key: Requests of equal key can be joined.
        enqueued: When it came, in the batcher's clock.
        future: Where the outputs go; done as soon as nobody waits for them any more.
        level: Its priority; 1 goes first.
        length: Its size of the axis along which requests are padded; 0 if they are not.
        expires: When it has waited for too long.
        delayed: Whether it has, and stands back behind the others of its level.
        room: What it takes of the queue's room: 0 for the later parts of a request that was cut into parts.
        timer: What ends its waiting.
        run: The run that it is in.
    """

    feed: Feed
    rows: int
    key: Key
    enqueued: float
    future: asyncio.Future[Feed]
    level: int = 1
    length: int = 0
    expires: float = math.inf
    delayed: bool = False
    room: int = 1
    timer: asyncio.TimerHandle | None = None
    run: Run | None = None

    @property
    def abandoned(self) -> bool:
        """Whether the caller gave up or was already answered."""
        return self.future.done()

    @property
    def weight(self) -> int:
        """What it takes of a batch's room: its rows, at least one so that empty requests are bounded as well."""
        return max(1, self.rows)

    @property
    def rank(self) -> tuple[int, bool]:
        """Those of a lower rank go first."""
        return self.level, self.delayed


def batch_key(feed: Feed, rows: int, varying: Mapping[str, tuple[int, ...]] | None = None) -> Key:
    """What has to be equal for two requests to be joined: names, dtypes and shapes behind axis 0.

    Args:
        feed: Arrays by input name.
        rows: The rows of the request.
        varying: Axes by input name that may differ, as they are padded.

    Raises:
        InvalidArgument: An input has not `rows` rows; joined with others it would shift their rows.
    """
    key = []
    for name in sorted(feed):
        array = feed[name]
        shape = array.shape
        if not shape or shape[0] != rows:
            raise InvalidArgument(f"input {name!r} has shape {list(shape)}, expected {rows} rows on axis 0")
        if varying and name in varying:
            shape = tuple(_VARYING if axis in varying[name] else size for axis, size in enumerate(shape))
        key.append((name, array.dtype, shape[1:]))
    return tuple(key)
