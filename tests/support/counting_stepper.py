"""A model whose next token follows from every token of the text so far; what is in a slot wrongly shows at once."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

__all__ = ["CountingStepper", "logits_after"]


def logits_after(tokens: Sequence[int], vocabulary: int) -> NDArray[np.float32]:
    """The logits after a text: as good as random, and always the same."""
    digest = zlib.crc32(np.array(tokens, np.int64).tobytes())
    return _random(digest, vocabulary)


@lru_cache(1 << 16)
def _random(seed: int, vocabulary: int) -> NDArray[np.float32]:
    return np.random.default_rng(seed).standard_normal(vocabulary).astype(np.float32) * 3


class CountingStepper:
    """Implements `generation.Stepper` over slots that hold the tokens themselves."""

    def __init__(self, slots: int, capacity: int, vocabulary: int) -> None:
        self.slots, self.capacity, self.vocabulary = slots, capacity, vocabulary
        self.cache = np.full((slots, capacity), -1, np.int64)
        self.most_rows = 0
        self.read = 0

    def decode(self, tokens: Sequence[int], lengths: Sequence[int]) -> NDArray[np.float32]:
        self.most_rows = max(self.most_rows, len(tokens))
        rows = range(len(tokens))
        self.cache[rows, lengths] = tokens
        return np.stack([logits_after(self.cache[row, : lengths[row] + 1].tolist(), self.vocabulary) for row in rows])

    def prefill(self, slot: int, tokens: Sequence[int], length: int) -> NDArray[np.float32]:
        self.read += len(tokens)
        self.cache[slot, length : length + len(tokens)] = tokens
        return logits_after(self.cache[slot, : length + len(tokens)].tolist(), self.vocabulary)

    def copy(self, source: int, target: int, length: int) -> None:
        self.cache[target, :length] = self.cache[source, :length]

    def swap(self, first: int, second: int, length: int) -> None:
        self.cache[[first, second], :length] = self.cache[[second, first], :length]
