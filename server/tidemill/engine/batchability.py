"""Whether rows of several requests can share a run: read from the signature, then proved by running."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from tidemill.dtype import DType
from tidemill.engine.samples import run_samples
from tidemill.errors import TidemillError
from tidemill.protocol.types import Array, TensorSpec

__all__ = ["BatchProof", "batch_symbol", "close", "prove_batchable"]

_Runner: TypeAlias = Callable[[Mapping[str, Array]], Mapping[str, Array]]

_ROWS = 3


@dataclass(frozen=True, slots=True)
class BatchProof:
    """Whether a model may be batched.

    Attributes:
        batchable: Whether it may.
        reason: Why, or why not: which output or input is in the way.
        symbol: The symbol of the batch axis; None if there is none.
    """

    batchable: bool
    reason: str
    symbol: str | None = None


def batch_symbol(inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]) -> str | None:
    """The symbol that is axis 0 of every input and every output; None if there is no such symbol."""
    specs = [*inputs, *outputs]
    symbols = {spec.shape[0] if spec.shape else "" for spec in specs}
    symbol = symbols.pop() if len(symbols) == 1 and inputs and outputs else None
    return symbol if isinstance(symbol, str) and symbol else None


def prove_batchable(run: _Runner, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]) -> BatchProof:
    """Run differing rows as one batch and one by one, and compare.

    Args:
        run: Runs the model; arrays by name in and out.
        inputs: The model's inputs.
        outputs: The model's outputs.

    Returns:
        The finding. A model that cannot be run on generated inputs is not batchable, as nothing was proved.
    """
    symbol = batch_symbol(inputs, outputs)
    if symbol is None:
        return BatchProof(False, _why_no_symbol(inputs, outputs))
    try:
        feed, batch = run_samples(run, inputs, {symbol: _ROWS})
        singles = [run({name: array[row : row + 1] for name, array in feed.items()}) for row in range(_ROWS)]
    except TidemillError as error:
        return BatchProof(False, f"nothing could be proved: {error}", symbol)
    difference = _first_difference(outputs, batch, singles)
    if difference:
        return BatchProof(False, difference, symbol)
    return BatchProof(True, f"{_ROWS} rows in one run equal {_ROWS} runs of one row", symbol)


def _why_no_symbol(inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]) -> str:
    if not inputs or not outputs:
        return "the model has no inputs or no outputs"
    listed = ", ".join(map(str, (*inputs, *outputs)))
    return f"axis 0 is not one symbol that all inputs and outputs share: {listed}"


def _first_difference(
    outputs: Sequence[TensorSpec], batch: Mapping[str, Array], singles: Sequence[Mapping[str, Array]]
) -> str:
    """What differs between the batch and the single runs, "" if nothing does."""
    for spec in outputs:
        joined = batch[spec.name]
        if joined.ndim == 0 or joined.shape[0] != _ROWS:
            return f"output {spec.name!r} has shape {list(joined.shape)} for {_ROWS} rows"
        for row, single in enumerate(singles):
            if not close(joined[row : row + 1], single[spec.name], spec.dtype):
                return f"output {spec.name!r} of a row depends on the other rows of its batch"
    return ""


def close(joined: Array, single: Array, dtype: DType) -> bool:
    """Whether what was computed for a batch is, but for rounding, what is computed for a request alone."""
    if joined.shape != single.shape:
        return False
    if not dtype.is_float():
        return bool(np.array_equal(joined, single))
    tolerance = _TOLERANCES.get(dtype.size_in_bytes, 0.1)
    left, right = joined.astype(np.float64), single.astype(np.float64)
    scale = float(np.max(np.abs(right), initial=0.0, where=np.isfinite(right)))
    return bool(np.allclose(left, right, rtol=tolerance, atol=tolerance * scale, equal_nan=True))


_TOLERANCES = {8: 1e-9, 4: 1e-4, 2: 2e-2}
"""Relative, by element size: kernels may sum in another order for a batch, but no more."""
