"""A loaded bundle with its batchers: what several served models may share; knows no names of models and no requests."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from tidemill.batching.batcher import Batcher
from tidemill.engine.batchability import BatchProof
from tidemill.engine.instance import Instance
from tidemill.protocol.types import Array, TensorSpec

__all__ = ["RunningModel"]


class RunningModel:
    """Runs checked inputs, in batches if the model allows.

    Attributes:
        inputs: The graph's inputs.
        outputs: The graph's outputs.
        instance: The loaded graph.
        proof: What was found out about batching at load.
    """

    def __init__(
        self, instance: Instance, proof: BatchProof, batcher: Batcher, *, large: tuple[int, Batcher] | None = None
    ) -> None:
        """Put an instance behind a batcher.

        Args:
            instance: The loaded graph.
            proof: Whether and along which symbol requests are joined.
            batcher: Where requests wait.
            large: From how many rows on requests wait in a batcher of their own, and that batcher; None if a request
                must not be larger than `batcher` takes.
        """
        self.instance = instance
        self.proof = proof
        self.inputs: tuple[TensorSpec, ...] = instance.inputs
        self.outputs: tuple[TensorSpec, ...] = instance.outputs
        self._batcher = batcher
        self._large = large
        self._axis = proof.symbol if proof.batchable else None

    @property
    def queued(self) -> int:
        """Requests that wait for a run."""
        return sum(batcher.queued for batcher in self._batchers())

    async def run(
        self, feed: Mapping[str, Array], sizes: Mapping[str, int], deadline: float | None
    ) -> Mapping[str, Array]:
        """Run one request.

        Args:
            feed: Arrays by input name, checked against `inputs`.
            sizes: The sizes of the symbolic dims.
            deadline: When the answer stops being wanted, in the batcher's clock.

        Returns:
            Arrays by output name.
        """
        rows = sizes[self._axis] if self._axis else 1
        if self._large and rows >= self._large[0]:
            return await self._large[1].infer(feed, rows, deadline)
        return await self._batcher.infer(feed, rows, deadline)

    async def drain(self) -> None:
        """Take no more requests and return when all that were taken are answered."""
        await asyncio.gather(*(batcher.drain() for batcher in self._batchers()))

    def close(self) -> None:
        """Take no more requests and fail those that wait with ShuttingDown."""
        for batcher in self._batchers():
            batcher.close()

    def _batchers(self) -> tuple[Batcher, ...]:
        return (self._batcher, self._large[1]) if self._large else (self._batcher,)
