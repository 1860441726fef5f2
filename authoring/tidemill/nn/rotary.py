"""Rotary position embedding: attention that sees how far apart tokens are."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tidemill.dtype import DType
from tidemill.graph import ops
from tidemill.graph.dim import Dim, DimLike
from tidemill.graph.value import TensorValue
from tidemill.nn.layer.module import Module
from tidemill.protocol.types import Array

__all__ = ["DynamicRotaryEmbedding", "LinearRotaryEmbedding", "LinearScalingParams", "RotaryEmbedding"]


class RotaryEmbedding(Module):
    """Turns pairs of a head's numbers by angles that grow with the position (Su et al., 2021).

    Angles are computed from the positions while the model runs, in float32, so there is no table and no last position;
    `freqs_cis` is the table for code that wants one.

    Args:
        dim: The model's hidden size.
        n_heads: The number of attention heads.
        theta: The base of the frequencies.
        max_seq_len: The longest sequence; the length of `freqs_cis` is twice that.
        head_dim: The size of a head; dim // n_heads by default.
        interleaved: Whether a pair is two neighbours, as in the Llama papers; else one is from the first half of the
            head and one from the second, as in Hugging Face's checkpoints.
    """

    def __init__(
        self,
        dim: int,
        n_heads: int,
        theta: float,
        max_seq_len: int,
        head_dim: int | None = None,
        interleaved: bool = True,
    ) -> None:
        super().__init__()
        self.dim = dim
        self.n_heads = n_heads
        self.theta = theta
        self.max_seq_len = max_seq_len
        self.head_dim = head_dim if head_dim is not None else dim // n_heads
        self.interleaved = interleaved
        if self.head_dim % 2:
            raise ValueError(
                f"RotaryEmbedding: head_dim is {self.head_dim}; numbers are turned in pairs, so it is even"
            )

    def inverse_frequencies(self) -> Array:
        """The angle between neighbouring positions of each pair: float32 [head_dim // 2], in radians."""
        exponents = np.arange(0, self.head_dim, 2, dtype=np.float64) / self.head_dim
        return (self.theta**-exponents).astype(np.float32)

    @property
    def magnitude(self) -> float:
        """What cosines and sines are multiplied by."""
        return 1.0

    def angles(self, positions: TensorValue) -> TensorValue:
        """int64 [batch, length] -> float32 [batch, length, head_dim // 2], in radians."""
        return self._spread(positions) * self.inverse_frequencies()

    def cos_sin(self, positions: TensorValue, dtype: DType = DType.float32) -> tuple[TensorValue, TensorValue]:
        """Cosine and sine of the angles, to be computed once and used by all layers.

        Args:
            positions: int64 [batch, length].
            dtype: That of what they will turn.

        Returns:
            Two of [batch, length, head_dim // 2].
        """
        angles = self.angles(positions)
        turned = ops.cos(angles), ops.sin(angles)
        if self.magnitude != 1.0:
            turned = turned[0] * self.magnitude, turned[1] * self.magnitude
        return ops.cast(turned[0], dtype), ops.cast(turned[1], dtype)

    def tables(self, dtype: DType = DType.float32) -> tuple[TensorValue, TensorValue]:
        """Cosines and sines of all positions below `max_seq_len`: two of [max_seq_len, head_dim // 2]."""
        positions = ops.unsqueeze(ops.range(0, self.max_seq_len), 0)
        cosine, sine = self.cos_sin(positions, dtype)
        return ops.squeeze(cosine, 0), ops.squeeze(sine, 0)

    def freqs_cis_base(self) -> TensorValue:
        """The table of cosines and sines: float32 [2 * max_seq_len, head_dim // 2, 2]."""
        positions = np.arange(2 * self.max_seq_len, dtype=np.int64)[None]
        cosine, sine = self.cos_sin(ops.constant(positions))
        return ops.squeeze(ops.stack([cosine, sine], axis=-1), 0)

    @property
    def freqs_cis(self) -> TensorValue:
        """The table with cosines and sines in turn: float32 [2 * max_seq_len, head_dim]."""
        return ops.reshape(self.freqs_cis_base(), (2 * self.max_seq_len, self.head_dim))

    def compute_scale(self, user_scale: float | None = None) -> float:
        """What attention multiplies its scores by: `user_scale`, or 1 / sqrt(head_dim)."""
        return user_scale if user_scale is not None else math.sqrt(1.0 / self.head_dim)

    def __call__(
        self, x: TensorValue, start_pos: DimLike | TensorValue | None = None, seq_len: DimLike | None = None
    ) -> TensorValue:
        """[batch, length, heads, head_dim] turned, of the same shape and dtype.

        Args:
            x: Queries or keys.
            start_pos: The position of the first token, 0 by default; or every token's, int64 [batch, length].
            seq_len: Not needed; the length of `x` if given.
        """
        if seq_len is not None and Dim(seq_len) != x.shape[1]:
            raise ValueError(f"RotaryEmbedding: seq_len is {seq_len}, but x has length {x.shape[1]}")
        positions = start_pos if isinstance(start_pos, TensorValue) else positions_from(x, start_pos)
        cosine, sine = self.cos_sin(positions, x.dtype)
        turned = self.rotate(ops.transpose(x, 1, 2), cosine, sine)
        return ops.transpose(turned, 1, 2)

    def rotate(self, x: TensorValue, cosine: TensorValue, sine: TensorValue) -> TensorValue:
        """[batch, heads, length, head_dim] turned by what `cos_sin` gave."""
        return ops.rotary_embedding(x, cosine, sine, interleaved=self.interleaved)

    def _spread(self, positions: TensorValue) -> TensorValue:
        return ops.unsqueeze(ops.cast(positions, DType.float32), -1)


def positions_from(x: TensorValue, start: DimLike | None = None) -> TensorValue:
    """int64 [batch, length]: the positions from `start` on of a tensor [batch, length, ...]."""
    first = Dim(0 if start is None else start)
    batch, length = x.shape[:2]
    return ops.broadcast_to(ops.range(first, first + length), (batch, length))


@dataclass(frozen=True)
class LinearScalingParams:
    """Position interpolation (Chen et al., 2023).

    Attributes:
        factor: How many times longer sequences may be than in training.
    """

    factor: float


class LinearRotaryEmbedding(RotaryEmbedding):
    """Rotary embedding in which positions count for less.

    The arguments before the last are those of `RotaryEmbedding`.

    Args:
        scaling_params: By how much; None for no scaling.
    """

    def __init__(
        self,
        dim: int,
        n_heads: int,
        theta: float,
        max_seq_len: int,
        head_dim: int | None = None,
        interleaved: bool = True,
        scaling_params: LinearScalingParams | None = None,
    ) -> None:
        super().__init__(dim, n_heads, theta, max_seq_len, head_dim, interleaved)
        self.scaling_params = scaling_params

    def inverse_frequencies(self) -> Array:
        """The frequencies divided by the factor."""
        factor = self.scaling_params.factor if self.scaling_params else 1.0
        return (super().inverse_frequencies() / factor).astype(np.float32)


class DynamicRotaryEmbedding(RotaryEmbedding):
    """Rotary embedding whose base grows once sequences are longer than in training.

    Angles are computed while the model runs, so without a factor this is plain rotary embedding of any length, which
    is what the seed's class of this name grows its table for. With a factor the base becomes
    theta * (factor * length / max_seq_len - factor + 1) ^ (head_dim / (head_dim - 2)) for a length, the highest
    position + 1, above max_seq_len ("dynamic NTK").

    The arguments before the last are those of `RotaryEmbedding`.

    Args:
        factor: How strongly the base grows; None for not at all.
    """

    def __init__(
        self,
        dim: int,
        n_heads: int,
        theta: float,
        max_seq_len: int,
        head_dim: int | None = None,
        interleaved: bool = True,
        factor: float | None = None,
    ) -> None:
        super().__init__(dim, n_heads, theta, max_seq_len, head_dim, interleaved)
        self.factor = factor

    def angles(self, positions: TensorValue) -> TensorValue:
        """As in `RotaryEmbedding`, with the base for the highest of these positions."""
        if self.factor is None:
            return super().angles(positions)
        highest = ops.reshape(ops.max(ops.reshape(positions, (-1,)), axis=0), ())
        length = ops.max(ops.cast(highest + 1, DType.float32), float(self.max_seq_len))
        growth = length * (self.factor / self.max_seq_len) - (self.factor - 1)
        # (theta * g^(d / (d - 2)))^(-i / d) = theta^(-i / d) * g^(-i / (d - 2)) for i = 0, 2, 4, ...
        exponents = -np.arange(0, self.head_dim, 2, dtype=np.float32) / (self.head_dim - 2)
        frequencies = ops.pow(growth, ops.constant(exponents)) * self.inverse_frequencies()
        return self._spread(positions) * frequencies
