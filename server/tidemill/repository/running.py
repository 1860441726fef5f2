"""A loaded bundle with its batcher: what several served models may share; knows no names of models and no requests."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from tidemill.batching.batcher import Batcher
from tidemill.batching.urgency import Urgency
from tidemill.engine.instance import Instance
from tidemill.protocol.types import Array, TensorSpec
from tidemill.repository.hold import Hold

if TYPE_CHECKING:
    from tidemill.repository.starting import BatchPlan

__all__ = ["RunningModel"]


class RunningModel:
    """Runs checked inputs, in batches if the model allows.

    Attributes:
        inputs: The graph's inputs, but for the mask that the server makes.
        outputs: The graph's outputs.
        output_names: Their names.
        instance: The loaded graph.
        plan: How it is batched, and why.
        batcher: Where requests wait.
        axis: The symbol of the dim along which requests are joined; None if they are not.
    """

    def __init__(self, instance: Instance, plan: BatchPlan, batcher: Batcher) -> None:
        """Put an instance behind a batcher.

        Args:
            instance: The loaded graph.
            plan: Whether and along which symbol requests are joined.
            batcher: Where requests wait.
        """
        self.instance = instance
        self.plan = plan
        ragged = plan.options.ragged
        made = ragged.mask[0] if ragged and ragged.mask else None
        self.inputs: tuple[TensorSpec, ...] = tuple(spec for spec in instance.inputs if spec.name != made)
        self.outputs: tuple[TensorSpec, ...] = instance.outputs
        self.output_names = [spec.name for spec in instance.outputs]
        self.batcher = batcher
        self.axis = plan.proof.symbol if plan.proof.batchable else None
        self._hold = Hold()

    @property
    def queued(self) -> int:
        """Requests that wait for a run."""
        return self.batcher.queued

    @property
    def busy(self) -> int:
        """Instances that are running now."""
        return self.batcher.busy

    @property
    def longest_run(self) -> float:
        """Seconds that the oldest run under way has taken by now; 0 if none is."""
        return self.batcher.longest_run

    def held(self) -> AbstractContextManager[None]:
        """Keep the model from being let go until the request is answered."""
        return self._hold.held()

    def submit(
        self,
        feed: Mapping[str, Array],
        sizes: Mapping[str, int],
        deadline: float | None = None,
        urgency: Urgency | None = None,
    ) -> asyncio.Future[Mapping[str, Array]]:
        """Have one request run.

        Args:
            feed: Arrays by input name, checked against `inputs`.
            sizes: The sizes of the symbolic dims.
            deadline: When the answer stops being wanted, in the batcher's clock.
            urgency: What the request asks of the queue.

        Returns:
            What will hold arrays by output name; cancelling it ends the work.
        """
        return self.batcher.submit(feed, self.rows(sizes), deadline, urgency)

    def rows(self, sizes: Mapping[str, int]) -> int:
        """The rows of a request whose symbolic dims have these sizes."""
        return sizes[self.axis] if self.axis else 1

    def room(self, rows: int) -> int:
        """How many requests of so many rows one run takes; 0 if a single one is too large."""
        limit = self.plan.options.max_batch_size
        return limit // max(1, rows) if limit else 1

    async def drain(self) -> None:
        """Return when all requests that were taken are answered; from then on take no more."""
        self.batcher.hurry()
        await self._hold.released()
        await self.batcher.drain()

    def abandon(self) -> None:
        """End the runs that are still under way."""
        self.batcher.abandon()

    def close(self) -> None:
        """Take no more requests and fail those that wait with ShuttingDown."""
        self.batcher.close()
        self.instance.close()
