"""Rows of several requests as one batch and back; pure functions that know nothing of queues, time or models."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from tidemill.batching.pending import Array, Feed
from tidemill.errors import InferenceFailed

__all__ = ["PIN_LIMIT", "join", "join_parts", "parts", "split"]

PIN_LIMIT = 1 << 20
"""Bytes of a batch's output up to which its parts are views; a view keeps the whole batch's memory alive."""


def join(feeds: Sequence[Feed]) -> Feed:
    """Put the rows of all feeds behind each other.

    Args:
        feeds: At least one; equal in names, dtypes and shapes behind axis 0.

    Returns:
        One array by input name. A lone feed is returned as it is, without a copy.
    """
    if len(feeds) == 1:
        return feeds[0]
    return {name: np.concatenate([feed[name] for feed in feeds]) for name in feeds[0]}


def split(outputs: Feed, rows: Sequence[int]) -> list[Feed]:
    """Cut a batch's outputs back into the parts that belong to each request.

    Args:
        outputs: Arrays by output name, each with `sum(rows)` rows on axis 0.
        rows: The row count of each request, in the order in which they were joined.

    Returns:
        One mapping a request, in that order.

    Raises:
        InferenceFailed: An output has another number of rows, so that nobody can say whose they are.
    """
    _check_rows(outputs, sum(rows))
    ends = np.cumsum(rows).tolist()
    return [
        {name: _part(array, end - count, end) for name, array in outputs.items()}
        for count, end in zip(rows, ends, strict=True)
    ]


def parts(feed: Feed, rows: int, limit: int) -> Iterator[tuple[Feed, int]]:
    """Cut a request into pieces of at most `limit` rows; views, each with its row count."""
    for start in range(0, rows, limit):
        end = min(start + limit, rows)
        yield {name: array[start:end] for name, array in feed.items()}, end - start


def join_parts(answers: Sequence[Feed], rows: Sequence[int]) -> Feed:
    """Put the answers to the pieces of one request together again.

    Raises:
        InferenceFailed: An output has not the rows of its piece.
    """
    for answer, count in zip(answers, rows, strict=True):
        _check_rows(answer, count)
    return join(answers)


def _check_rows(outputs: Feed, total: int) -> None:
    for name, array in outputs.items():
        if array.ndim == 0 or array.shape[0] != total:
            raise InferenceFailed(
                f"output {name!r} has shape {list(array.shape)} for a batch of {total} rows; it cannot be split by "
                "request, so the model must not be batched (max_batch_size: 0)"
            )


def _part(array: Array, start: int, end: int) -> Array:
    part = array[start:end]
    return part.copy() if array.nbytes > PIN_LIMIT else part
