"""One request that waits for its run; knows nothing of queues, threads or models."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from tidemill.errors import InvalidArgument

__all__ = ["Array", "Feed", "Key", "Pending", "batch_key"]

Array: TypeAlias = npt.NDArray[Any]
Feed: TypeAlias = Mapping[str, Array]
Key: TypeAlias = tuple[tuple[str, np.dtype[Any], tuple[int, ...]], ...]


@dataclass(slots=True, eq=False)
class Pending:
    """A request on its way through the queue; equal only to itself.

    Attributes:
        feed: Input arrays by name.
        rows: The size of axis 0 that all inputs share.
        key: Requests of equal key can be joined.
        enqueued: When it came, in the batcher's clock.
        future: Where the outputs go; done as soon as nobody waits for them any more.
    """

    feed: Feed
    rows: int
    key: Key
    enqueued: float
    future: asyncio.Future[Feed]

    @property
    def abandoned(self) -> bool:
        """Whether the caller gave up or was already answered."""
        return self.future.done()

    @property
    def weight(self) -> int:
        """What it takes of a batch's room: its rows, at least one so that empty requests are bounded as well."""
        return max(1, self.rows)


def batch_key(feed: Feed, rows: int) -> Key:
    """What has to be equal for two requests to be joined: names, dtypes and shapes behind axis 0.

    Raises:
        InvalidArgument: An input has not `rows` rows; joined with others it would shift their rows.
    """
    key = []
    for name in sorted(feed):
        array = feed[name]
        shape = array.shape
        if not shape or shape[0] != rows:
            raise InvalidArgument(f"input {name!r} has shape {list(shape)}, expected {rows} rows on axis 0")
        key.append((name, array.dtype, shape[1:]))
    return tuple(key)
