"""Embedding: a table of vectors looked up by id."""

from __future__ import annotations

from tidemill.dtype import DType
from tidemill.graph import ops
from tidemill.graph.quantization import QuantizationEncoding
from tidemill.graph.type import DeviceRef
from tidemill.graph.value import TensorValue
from tidemill.nn.layer.module import Module
from tidemill.nn.linear import refuse_quantization, stored_weight

__all__ = ["Embedding"]


class Embedding(Module):
    """The rows of a table.

    Args:
        vocab_size: The number of rows.
        hidden_dim: The length of a row.
        dtype: The element type of the table.
        device: Where the table lives.
        quantization_encoding: How the checkpoint packs the rows: Q4_0, Q4_K, Q5_K or Q6_K; None for plain numbers.
        name: Put before the weight's name.

    Weights: `weight` [vocab_size, hidden_dim], or the packed uint8 [vocab_size, bytes of a row].

    Raises:
        NotImplementedError: The encoding is another.
        ValueError: `hidden_dim` is not a whole number of the encoding's blocks.
    """

    def __init__(
        self,
        vocab_size: int,
        hidden_dim: int,
        dtype: DType,
        device: DeviceRef | None = None,
        quantization_encoding: QuantizationEncoding | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__()
        refuse_quantization("Embedding", quantization_encoding)
        full_name = f"{name}.weight" if name else "weight"
        self.weight = stored_weight(full_name, dtype, (vocab_size, hidden_dim), device, quantization_encoding)

    def __call__(self, indices: TensorValue) -> TensorValue:
        """int32 or int64 [...] -> [..., hidden_dim]; an id beyond the table fails the run."""
        rows = ops.gather(self.weight, indices, axis=0)
        encoding = self.weight.quantization_encoding
        return ops.dequantize(encoding, rows) if encoding else rows
