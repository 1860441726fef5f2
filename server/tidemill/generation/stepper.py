"""What a model must be able to do to have texts generated, row by row in slots of a cache; implemented elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

__all__ = ["Stepper"]


class Stepper(Protocol):
    """A model over a cache of slots. Not for two threads at once.

    Attributes:
        slots: How many texts it holds.
        capacity: How many tokens of each.
        vocabulary: How many logits there are.
    """

    slots: int
    capacity: int
    vocabulary: int

    def decode(self, tokens: Sequence[int], lengths: Sequence[int]) -> NDArray[np.float32]:
        """Put one token into each of the first slots.

        Args:
            tokens: The token of slot 0, 1, ...
            lengths: How many tokens each of them holds before.

        Returns:
            float32 [len(tokens), vocabulary], the logits after these tokens; overwritten by the next call.
        """

    def prefill(self, slot: int, tokens: Sequence[int], length: int) -> NDArray[np.float32]:
        """Put several tokens into one slot.

        Args:
            slot: The slot.
            tokens: The tokens.
            length: How many it holds before; what it holds beyond is forgotten.

        Returns:
            float32 [vocabulary], the logits after the last token; overwritten by the next call.
        """

    def copy(self, source: int, target: int, length: int) -> None:
        """Make the first `length` tokens of a slot those of another."""

    def swap(self, first: int, second: int, length: int) -> None:
        """Exchange the first `length` tokens of two slots."""
