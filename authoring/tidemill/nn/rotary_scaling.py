"""Rotary embeddings whose frequencies are scaled by parts, for sequences longer than in training."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tidemill.graph import ops
from tidemill.graph.value import TensorValue
from tidemill.nn.rotary import RotaryEmbedding
from tidemill.protocol.types import Array

__all__ = [
    "Llama3RopeScalingParams",
    "Llama3RotaryEmbedding",
    "LongRoPERotaryEmbedding",
    "LongRoPEScalingParams",
    "YarnRotaryEmbedding",
    "YarnScalingParams",
]


@dataclass(frozen=True)
class Llama3RopeScalingParams:
    """The scaling of Llama 3.1.

    Attributes:
        factor: By what low frequencies are divided.
        low_freq_factor: Waves longer than orig_max_position / low_freq_factor are low frequencies.
        high_freq_factor: Waves shorter than orig_max_position / high_freq_factor stay as they are.
        orig_max_position: The length in training.
    """

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    orig_max_position: int


class Llama3RotaryEmbedding(RotaryEmbedding):
    """Rotary embedding with low frequencies divided by a factor, high ones kept, and a ramp between.

    The arguments before the last are those of `RotaryEmbedding`.

    Args:
        scaling_params: The scaling; None for none.
    """

    def __init__(
        self,
        dim: int,
        n_heads: int,
        theta: float,
        max_seq_len: int,
        head_dim: int | None = None,
        interleaved: bool = True,
        scaling_params: Llama3RopeScalingParams | None = None,
    ) -> None:
        super().__init__(dim, n_heads, theta, max_seq_len, head_dim, interleaved)
        self.scaling_params = scaling_params

    def inverse_frequencies(self) -> Array:
        """The scaled frequencies."""
        plain, params = super().inverse_frequencies(), self.scaling_params
        if params is None:
            return plain
        turns = params.orig_max_position * plain.astype(np.float64) / (2 * math.pi)
        span = params.high_freq_factor - params.low_freq_factor
        kept = np.clip((turns - params.low_freq_factor) / span, 0, 1) if span else turns >= params.high_freq_factor
        return (plain * (kept + (1 - kept) / params.factor)).astype(np.float32)


@dataclass(frozen=True)
class LongRoPEScalingParams:
    """The scaling of Phi 3 (Ding et al., 2024).

    Attributes:
        short_factor: By what each frequency is divided at positions below `original_max_position`.
        long_factor: By what each frequency is divided from there on.
        original_max_position: The length in training.
        max_position_embeddings: The length it is scaled to.
    """

    short_factor: Sequence[float]
    long_factor: Sequence[float]
    original_max_position: int
    max_position_embeddings: int


class LongRoPERotaryEmbedding(RotaryEmbedding):
    """Rotary embedding with a divisor for each frequency, one set for near positions and one for far ones.

    The arguments before the last are those of `RotaryEmbedding`.

    Args:
        scaling_params: The scaling; None for none.

    Raises:
        ValueError: There are fewer divisors than frequencies.
    """

    def __init__(
        self,
        dim: int,
        n_heads: int,
        theta: float,
        max_seq_len: int,
        head_dim: int | None = None,
        interleaved: bool = True,
        scaling_params: LongRoPEScalingParams | None = None,
    ) -> None:
        super().__init__(dim, n_heads, theta, max_seq_len, head_dim, interleaved)
        self.scaling_params = scaling_params
        pairs = self.head_dim // 2
        if scaling_params and min(len(scaling_params.short_factor), len(scaling_params.long_factor)) < pairs:
            raise ValueError(
                f"LongRoPERotaryEmbedding: {pairs} frequencies need as many factors, not "
                f"{len(scaling_params.short_factor)} short and {len(scaling_params.long_factor)} long ones"
            )

    def angles(self, positions: TensorValue) -> TensorValue:
        """As in `RotaryEmbedding`, each position with the divisors for it."""
        params = self.scaling_params
        if params is None:
            return super().angles(positions)
        plain = self.inverse_frequencies()
        near, far = (
            ops.constant((plain / np.array(factors[: len(plain)])).astype(np.float32))
            for factors in (params.short_factor, params.long_factor)
        )
        is_near = ops.unsqueeze(ops.greater(params.original_max_position, positions), -1)
        return self._spread(positions) * ops.where(is_near, near, far)

    def compute_scale(self, user_scale: float | None = None) -> float:
        """`user_scale`, or 1 / sqrt(head_dim) raised for the longer context."""
        params, scale = self.scaling_params, super().compute_scale(user_scale)
        if user_scale is not None or params is None:
            return scale
        growth = max(params.max_position_embeddings / params.original_max_position, 1.0)
        return scale * math.sqrt(1 + math.log(growth) / math.log(params.original_max_position))


@dataclass(frozen=True)
class YarnScalingParams:
    """The scaling of YaRN (Peng et al., 2023).

    Attributes:
        factor: By what low frequencies are divided.
        beta_fast: Pairs that turn at least so often over the trained length stay as they are.
        beta_slow: Pairs that turn at most so often are divided.
        original_max_position_embeddings: The length in training.
        truncate: Whether the ends of the ramp between are rounded to whole pairs.
    """

    factor: float
    beta_fast: float
    beta_slow: float
    original_max_position_embeddings: int
    truncate: bool = True


class YarnRotaryEmbedding(RotaryEmbedding):
    """Rotary embedding with slow pairs slowed further, fast ones kept, a ramp between, and larger magnitudes.

    The arguments before the last are those of `RotaryEmbedding`.

    Args:
        scaling_params: The scaling; None for none.
    """

    def __init__(
        self,
        dim: int,
        n_heads: int,
        theta: float,
        max_seq_len: int,
        head_dim: int | None = None,
        interleaved: bool = True,
        scaling_params: YarnScalingParams | None = None,
    ) -> None:
        super().__init__(dim, n_heads, theta, max_seq_len, head_dim, interleaved)
        self.scaling_params = scaling_params

    @property
    def magnitude(self) -> float:
        """0.1 ln(factor) + 1 for a factor above 1."""
        factor = self.scaling_params.factor if self.scaling_params else 1.0
        return 0.1 * math.log(factor) + 1.0 if factor > 1 else 1.0

    def inverse_frequencies(self) -> Array:
        """The scaled frequencies."""
        plain, params = super().inverse_frequencies(), self.scaling_params
        if params is None:
            return plain
        first, last = self._ramp(params)
        divided = np.clip((np.arange(len(plain)) - first) / (last - first), 0, 1)
        scaled: Array = (plain * (1 - divided + divided / params.factor)).astype(np.float32)
        return scaled

    def _ramp(self, params: YarnScalingParams) -> tuple[float, float]:
        """Between which pairs the divisor grows."""
        first, last = (self._pair_of(turns, params) for turns in (params.beta_fast, params.beta_slow))
        if params.truncate:
            first, last = float(math.floor(first)), float(math.ceil(last))
        first, last = max(first, 0.0), min(last, self.head_dim - 1.0)
        return first, last if last != first else first + 0.001

    def _pair_of(self, turns: float, params: YarnScalingParams) -> float:
        """Which pair, as a fraction, turns so often over the trained length."""
        radians = params.original_max_position_embeddings / (turns * 2 * math.pi)
        return self.head_dim * math.log(radians) / (2 * math.log(self.theta))
