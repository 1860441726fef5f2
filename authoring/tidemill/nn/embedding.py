"""Embedding: a table of vectors looked up by id."""

from __future__ import annotations

from typing import Any

from tidemill.dtype import DType
from tidemill.graph import ops
from tidemill.graph.type import DeviceRef
from tidemill.graph.value import TensorValue
from tidemill.graph.weight import Weight
from tidemill.nn.layer.module import Module
from tidemill.nn.linear import refuse_quantization

__all__ = ["Embedding"]


class Embedding(Module):
    """The rows of a table.

    Args:
        vocab_size: The number of rows.
        hidden_dim: The length of a row.
        dtype: The element type of the table.
        device: Where the table lives.
        quantization_encoding: Must be None.
        name: Put before the weight's name.

    Weights: `weight` [vocab_size, hidden_dim].
    """

    def __init__(
        self,
        vocab_size: int,
        hidden_dim: int,
        dtype: DType,
        device: DeviceRef | None = None,
        quantization_encoding: Any = None,
        name: str | None = None,
    ) -> None:
        super().__init__()
        refuse_quantization("Embedding", quantization_encoding)
        self.weight = Weight(f"{name}.weight" if name else "weight", dtype, (vocab_size, hidden_dim), device)

    def __call__(self, indices: TensorValue) -> TensorValue:
        """int32 or int64 [...] -> [..., hidden_dim]; an id beyond the table fails the run."""
        return ops.gather(self.weight, indices, axis=0)
