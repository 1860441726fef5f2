"""Linear maps whose weights are small whole numbers, a block of them with one scale."""

from __future__ import annotations

from typing import Any

from tidemill.dtype import DType
from tidemill.graph import ops
from tidemill.graph.layout import ConvInputLayout
from tidemill.graph.type import DeviceRef, TensorType
from tidemill.graph.value import TensorValue
from tidemill.graph.weight import Weight
from tidemill.nn.layer.module import Module

__all__ = ["BlockLinear"]

_KERNEL = "MatMulNBits"
_INT8_ACTIVATIONS = 4
"""The kernel's accuracy level at which it rounds a block of the input to int8 as well: the fast one on CPUs."""


class BlockLinear(Module):
    """x @ weight.T, the weight being (codes - 2 ** (bits - 1)) * scales + offsets / block_size, kept as it is.

    ONNX Runtime's MatMulNBits with float zero points leaves its fast path. So offsets are multiplied by the mean
    of their block's inputs in a small product beside it, which is exact; products of one input share these means.

    Args:
        in_dim: The last dim of the input, a multiple of `block_size`.
        out_dim: The last dim of the output.
        bits: 4 or 8.
        block_size: How many numbers of a row share a scale: 16, 32, 64, 128 or 256.
        has_offsets: Whether blocks have an offset.
        device: Where the weights live.
        exact: Whether the input is used as it is; else blocks of it are rounded to int8, as llama.cpp does.

    Weights: `codes` uint8 [out_dim, in_dim / block_size, block_size * bits / 8], of four bits the even one in the low
    half of a byte; `scales` float32 [out_dim, in_dim / block_size]; `offsets` float32 [in_dim / block_size, out_dim].

    Raises:
        ValueError: The kernel does not take these sizes.
    """

    def __init__(
        self,
        in_dim: int,
        out_dim: int,
        bits: int = 4,
        block_size: int = 32,
        has_offsets: bool = False,
        device: DeviceRef | None = None,
        exact: bool = False,
        **_: Any,
    ) -> None:
        super().__init__()
        if bits not in (4, 8) or block_size not in (16, 32, 64, 128, 256) or in_dim % block_size:
            raise ValueError(
                f"BlockLinear: in_dim={in_dim}, bits={bits}, block_size={block_size}; expected 4 or 8 bits, and blocks "
                "of 16, 32, 64, 128 or 256 that in_dim is a multiple of"
            )
        blocks = in_dim // block_size
        self.in_dim, self.out_dim, self.bits, self.block_size, self.exact = in_dim, out_dim, bits, block_size, exact
        self.codes = Weight("codes", DType.uint8, (out_dim, blocks, block_size * bits // 8), device)
        self.scales = Weight("scales", DType.float32, (out_dim, blocks), device)
        self.offsets = Weight("offsets", DType.float32, (blocks, out_dim), device) if has_offsets else None

    def __call__(self, x: TensorValue) -> TensorValue:
        """float32 [..., in_dim] -> [..., out_dim]."""
        type = TensorType(x.dtype, (*x.shape[:-1], self.out_dim), x.device)
        parameters = {"K": self.in_dim, "N": self.out_dim, "bits": self.bits, "block_size": self.block_size}
        if not self.exact:
            parameters["accuracy_level"] = _INT8_ACTIVATIONS
        values = [x, self.codes, self.scales]
        product = ops.custom(_KERNEL, x.device, values, [type], parameters, domain="com.microsoft")[0]
        if self.offsets is None:
            return product
        # The mean of each block in one node: the last dim is pooled as if the one before it were channels.
        means = ops.avg_pool1d(x, self.block_size, self.block_size, input_layout=ConvInputLayout.NCHW)
        return product + ops.matmul(means, self.offsets)

    def rows(self, places: TensorValue) -> TensorValue:
        """Rows of the weight, for a model whose output and embedding are one: int64 [...] -> float32 [..., in_dim].

        Raises:
            NotImplementedError: The codes have four bits, or there are offsets.
        """
        if self.bits != 8 or self.offsets is not None:
            raise NotImplementedError("BlockLinear.rows: only of 8 bits without offsets")
        codes = ops.gather(self.codes, places, 0).cast(DType.float32) - 128.0
        scaled = codes * ops.unsqueeze(ops.gather(self.scales, places, 0), -1)
        return ops.reshape(scaled, (*places.shape, self.in_dim))
