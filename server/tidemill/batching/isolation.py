"""Runs a group of requests so that a bad one fails alone; the boundary at which a runner's exceptions are caught."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from tidemill.batching.batch import join, split
from tidemill.batching.pending import Feed, Pending
from tidemill.errors import Cancelled, InferenceFailed, TidemillError

__all__ = ["Outcome", "Runner", "run_group"]

Runner: TypeAlias = Callable[[Feed], Feed]
Outcome: TypeAlias = Feed | TidemillError


def run_group(runner: Runner, group: Sequence[Pending]) -> list[Outcome]:
    """Run requests as one batch; if that fails, run its halves, down to the requests that are to blame.

    One bad request among n costs about 2 log2(n) more runs, n bad ones cost 2n - 2 more. A lone request is answered
    with the runner's outputs as they are, so that even a model which cannot be split gives right answers.

    Returns:
        The outputs or the error of each request, in order.
    """
    try:
        outputs = runner(join([pending.feed for pending in group]))
        return [outputs] if len(group) == 1 else [*split(outputs, [pending.rows for pending in group])]
    except Exception as error:
        if len(group) == 1:
            return [_explained(error)]
    middle = len(group) // 2
    return [*_run_wanted(runner, group[:middle]), *_run_wanted(runner, group[middle:])]


def _run_wanted(runner: Runner, group: Sequence[Pending]) -> list[Outcome]:
    """Run those that somebody still waits for; the first run may have outlived some callers."""
    wanted = [pending for pending in group if not pending.abandoned]
    outcomes = iter(run_group(runner, wanted) if wanted else ())
    return [next(outcomes) if pending in wanted else Cancelled("the caller is gone") for pending in group]


def _explained(error: Exception) -> TidemillError:
    if isinstance(error, TidemillError):
        return error
    failure = InferenceFailed(f"the run failed with {type(error).__name__}: {error}")
    failure.__cause__ = error
    return failure
