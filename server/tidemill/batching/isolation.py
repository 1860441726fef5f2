"""Runs a group of requests so that a bad one fails alone; the boundary at which a runner's exceptions are caught."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from tidemill.batching.pending import Feed, Pending
from tidemill.errors import Cancelled, InferenceFailed, TidemillError, Unavailable

__all__ = ["Outcome", "run_group"]

Outcome: TypeAlias = Feed | TidemillError
_RunBatch: TypeAlias = Callable[[Sequence[Pending]], list[Feed]]


def run_group(run_batch: _RunBatch, group: Sequence[Pending]) -> list[Outcome]:
    """Run requests as one batch; if that fails, run its halves, down to the requests that are to blame.

    One bad request among n costs about 2 log2(n) more runs, n bad ones cost 2n - 2 more.

    Args:
        run_batch: Runs requests in one run and gives the outputs of each.
        group: The requests.

    Returns:
        The outputs or the error of each request, in order.
    """
    try:
        return [*run_batch(group)]
    except Unavailable as error:  # no request is to blame, and running it again would not help
        return [error] * len(group)
    except Exception as error:
        if len(group) == 1:
            return [_explained(error)]
    middle = len(group) // 2
    return [*_run_wanted(run_batch, group[:middle]), *_run_wanted(run_batch, group[middle:])]


def _run_wanted(run_batch: _RunBatch, group: Sequence[Pending]) -> list[Outcome]:
    """Run those that somebody still waits for; the first run may have outlived some callers."""
    wanted = [pending for pending in group if not pending.abandoned]
    outcomes = iter(run_group(run_batch, wanted) if wanted else ())
    return [next(outcomes) if pending in wanted else Cancelled("the caller is gone") for pending in group]


def _explained(error: Exception) -> TidemillError:
    if isinstance(error, TidemillError):
        return error
    failure = InferenceFailed(f"the run failed with {type(error).__name__}: {error}")
    failure.__cause__ = error
    return failure
