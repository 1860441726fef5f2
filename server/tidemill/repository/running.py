"""A loaded bundle with its batcher: what several served models may share; knows no names of models and no requests."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

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
        batcher: Where requests wait.
        proof: What was found out about batching at load.
    """

    def __init__(self, instance: Instance, batcher: Batcher, proof: BatchProof, *, most_rows: int) -> None:
        """Put an instance behind a batcher.

        Args:
            instance: The loaded graph.
            batcher: Its queue.
            proof: Whether and along which symbol requests are joined.
            most_rows: Larger requests are run in parts of so many rows; 0 to leave them whole.
        """
        self.instance = instance
        self.batcher = batcher
        self.proof = proof
        self.inputs: tuple[TensorSpec, ...] = instance.inputs
        self.outputs: tuple[TensorSpec, ...] = instance.outputs
        self._axis = proof.symbol if proof.batchable else None
        self._most_rows = most_rows

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
        if not self._most_rows or rows <= self._most_rows:
            return await self.batcher.infer(feed, rows, deadline)
        return await self._run_in_parts(feed, rows, deadline)

    async def _run_in_parts(self, feed: Mapping[str, Array], rows: int, deadline: float | None) -> dict[str, Array]:
        parts = []
        # One part after the other, so that a large request leaves room for others between its parts.
        for start in range(0, rows, self._most_rows):
            end = min(start + self._most_rows, rows)
            part = {name: array[start:end] for name, array in feed.items()}
            parts.append(await self.batcher.infer(part, end - start, deadline))
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
