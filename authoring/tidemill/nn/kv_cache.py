"""What is fixed about a key and value cache, and the inputs and outputs that it makes a graph have."""

from __future__ import annotations

from dataclasses import dataclass

from tidemill.dtype import DType
from tidemill.graph.dim import DimLike
from tidemill.graph.type import DeviceRef, TensorType

__all__ = ["KVCacheParams"]


@dataclass(frozen=True)
class KVCacheParams:
    """The sizes of a cache.

    Attributes:
        dtype: The element type of keys and values.
        n_kv_heads: The number of key and value heads.
        head_dim: The size of a head.
        num_layers: The number of attention layers.
        device: Where it lives.
    """

    dtype: DType
    n_kv_heads: int
    head_dim: int
    num_layers: int = 1
    device: DeviceRef | None = None

    def input_types(self, batch: DimLike = "batch", past: DimLike = "past") -> list[TensorType]:
        """The type of each layer's keys, then values: [batch, n_kv_heads, past, head_dim], two for each layer."""
        shape = (batch, self.n_kv_heads, past, self.head_dim)
        return [TensorType(self.dtype, shape, self.device) for _ in range(2 * self.num_layers)]

    def names(self, prefix: str) -> list[str]:
        """`past.0.key`, `past.0.value`, `past.1.key`, ... for the prefix "past", in the order of `input_types`."""
        return [f"{prefix}.{layer}.{part}" for layer in range(self.num_layers) for part in ("key", "value")]
