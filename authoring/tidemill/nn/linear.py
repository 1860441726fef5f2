"""Linear: the affine map."""

from __future__ import annotations

from typing import Any

from tidemill.dtype import DType
from tidemill.graph import ops
from tidemill.graph.quantization import QuantizationEncoding
from tidemill.graph.type import DeviceRef
from tidemill.graph.value import TensorValue
from tidemill.graph.weight import Weight
from tidemill.nn.clamp import clamp
from tidemill.nn.layer.module import Module

__all__ = ["Linear", "refuse_quantization", "stored_weight"]


class Linear(Module):
    """x @ weight.T + bias.

    The weight is read as it lies in its file. `clip_weight` changes that: the runtime then keeps a clipped copy.

    Args:
        in_dim: The last dim of the input.
        out_dim: The last dim of the output.
        dtype: The element type of the weights; the input may have another that it promotes with.
        device: Where the weights live.
        has_bias: Whether there is a bias.
        quantization_encoding: How the checkpoint packs the weight: Q4_0, Q4_K, Q5_K or Q6_K; None for plain numbers.
        quant_config: Must be None: weights with scales of their own are not computed with.
        name: Put before the weights' names: "proj" gives "proj.weight".
        clip_weight: Clip the weight to [-clip_weight, clip_weight] before use.

    Weights: `weight` [out_dim, in_dim], or the packed uint8 [out_dim, bytes of a row]; `bias` [out_dim].

    Raises:
        NotImplementedError: A quantisation is asked for that is not computed with.
        ValueError: `in_dim` is not a whole number of the encoding's blocks, or a packed weight is to be clipped.
    """

    def __init__(
        self,
        in_dim: int,
        out_dim: int,
        dtype: DType,
        device: DeviceRef | None = None,
        has_bias: bool = False,
        quantization_encoding: QuantizationEncoding | None = None,
        quant_config: Any = None,
        name: str | None = None,
        clip_weight: float | None = None,
    ) -> None:
        super().__init__()
        refuse_quantization("Linear", quantization_encoding, quant_config)
        if quantization_encoding and clip_weight:
            raise ValueError("Linear: a packed weight can not be clipped; leave clip_weight out")
        prefix = f"{name}." if name else ""
        self.device = device
        self.clip_weight = clip_weight
        self.weight = stored_weight(f"{prefix}weight", dtype, (out_dim, in_dim), device, quantization_encoding)
        plain = DType.float32 if quantization_encoding else dtype
        self.bias = Weight(f"{prefix}bias", plain, (out_dim,), device) if has_bias else None

    def __call__(self, x: TensorValue) -> TensorValue:
        """[..., in_dim] -> [..., out_dim]."""
        encoding = self.weight.quantization_encoding
        if encoding:
            product = ops.qmatmul(encoding, None, x, self.weight)
            return product if self.bias is None else product + self.bias
        weight = clamp(self.weight, -self.clip_weight, self.clip_weight) if self.clip_weight else self.weight
        return ops.linear(x, weight, self.bias)


def stored_weight(
    name: str,
    dtype: DType,
    shape: tuple[int, int],
    device: DeviceRef | None,
    encoding: QuantizationEncoding | None,
) -> Weight:
    """A matrix as a checkpoint stores it; packed rows of an encoding are uint8.

    Raises:
        ValueError: A row is not a whole number of the encoding's blocks.
    """
    if encoding is None:
        return Weight(name, dtype, shape, device)
    rows, columns = shape
    if columns % encoding.elements_per_block:
        raise ValueError(
            f"a row of {columns} numbers is not a whole number of blocks of {encoding.elements_per_block}, as "
            f"{encoding.name} packs them"
        )
    packed = columns // encoding.elements_per_block * encoding.block_size
    return Weight(name, DType.uint8, (rows, packed), device, quantization_encoding=encoding)


def refuse_quantization(layer: str, encoding: QuantizationEncoding | None, quant_config: Any = None) -> None:
    """NotImplementedError for what layers do not compute with, saying what to do instead."""
    if quant_config is not None:
        raise NotImplementedError(
            f"{layer}(quant_config={quant_config}): weights with scales of their own are not computed with. Load them "
            "dequantised, and let the build quantise the finished model."
        )
    if encoding is not None and not encoding.is_gguf:
        raise NotImplementedError(
            f"{layer}(quantization_encoding={encoding}): one weight does not hold all that this needs. Give a module "
            "of your own the checkpoint's tensors as Weights and call ops.qmatmul."
        )
