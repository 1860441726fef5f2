"""Harmless inputs made from a signature, for warming up and for proofs; knows a model as a callable."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeAlias

import numpy as np

from tidemill.dtype import DType
from tidemill.errors import TidemillError
from tidemill.protocol.types import Array, TensorSpec

__all__ = ["run_samples", "sample_feed"]

_Runner: TypeAlias = Callable[[Mapping[str, Array]], Mapping[str, Array]]

_SIZES = (4, 16, 64, 224)
"""Tried in turn for the free dims: convolutions and windows do not take any size."""


def run_samples(
    run: _Runner, specs: Sequence[TensorSpec], sizes: Mapping[str, int], *, seed: int = 0
) -> tuple[Mapping[str, Array], Mapping[str, Array]]:
    """Run the smallest generated inputs that the model accepts.

    Args:
        run: Runs the model; arrays by name in and out.
        specs: The model's inputs.
        sizes: Sizes of symbolic dims by name; other free dims are made larger until the model accepts them.
        seed: Of the random values.

    Returns:
        The inputs and the outputs.

    Raises:
        TidemillError: It accepts none; what it said to the smallest.
    """
    refusal: TidemillError | None = None
    for size in _SIZES:
        feed = sample_feed(specs, sizes, size=size, seed=seed)
        try:
            return feed, run(feed)
        except TidemillError as error:
            refusal = refusal or error
    assert refusal
    raise refusal


def sample_feed(specs: Iterable[TensorSpec], sizes: Mapping[str, int], *, size: int, seed: int = 0) -> dict[str, Array]:
    """Random arrays by name that fit the specs.

    Values are such that they can be ids, masks, lengths or measurements alike: whole numbers are 0 or 1, the last
    axis beginning with 1 so that no mask is empty; floats are normal; strings are short.

    Args:
        specs: The inputs.
        sizes: Sizes of symbolic dims by name.
        size: The size of all other dims that are not fixed.
        seed: Of the random values.
    """
    rng = np.random.default_rng(seed)
    return {
        spec.name: _sample(spec.dtype, tuple(d if isinstance(d, int) else sizes.get(d, size) for d in spec.shape), rng)
        for spec in specs
    }


def _sample(dtype: DType, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    if dtype.is_float():
        return rng.standard_normal(shape).astype(dtype.to_numpy())
    bits = rng.integers(0, 2, shape)
    if len(shape) > 1:
        bits[..., :1] = 1
    if dtype is DType.string:
        texts = [b"a" if bit else b"b" for bit in bits.ravel()]
        return np.fromiter(texts, np.object_, len(texts)).reshape(shape)
    return bits.astype(dtype.to_numpy())
