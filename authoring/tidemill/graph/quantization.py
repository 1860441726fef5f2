"""How the bytes of a quantised weight encode numbers; the names are llama.cpp's and GPTQ's."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

__all__ = ["BlockParameters", "QuantizationConfig", "QuantizationEncoding"]


@dataclass(frozen=True, slots=True)
class BlockParameters:
    """A block of numbers that are encoded together.

    Attributes:
        elements_per_block: How many numbers it holds.
        block_size: Its bytes.
    """

    elements_per_block: int
    block_size: int


@dataclass(frozen=True, slots=True)
class QuantizationConfig:
    """What a checkpoint says of its quantisation, as in the `quantization_config` of GPTQ models.

    Attributes:
        quant_method: "gptq".
        bits: Of one number.
        group_size: How many rows share a scale.
        desc_act: Whether rows are grouped by an index of their own instead of in order.
        sym: Whether numbers are symmetric around zero.
    """

    quant_method: str
    bits: int
    group_size: int
    desc_act: bool = False
    sym: bool = False


class QuantizationEncoding(Enum):
    """The packing of a weight whose dtype is uint8."""

    Q4_0 = "Q4_0"
    Q4_K = "Q4_K"
    Q5_K = "Q5_K"
    Q6_K = "Q6_K"
    GPTQ = "GPTQ"

    @property
    def block_parameters(self) -> BlockParameters:
        """The size of a block; ValueError for GPTQ, which has none."""
        try:
            return _BLOCKS[self]
        except KeyError:
            raise ValueError(f"{self.name} has no blocks: its group size is in QuantizationConfig") from None

    @property
    def elements_per_block(self) -> int:
        """How many numbers a block holds."""
        return self.block_parameters.elements_per_block

    @property
    def block_size(self) -> int:
        """The bytes of a block."""
        return self.block_parameters.block_size

    @property
    def is_gguf(self) -> bool:
        """Whether it is one of llama.cpp's encodings."""
        return self in _BLOCKS


_BLOCKS = {
    QuantizationEncoding.Q4_0: BlockParameters(32, 18),
    QuantizationEncoding.Q4_K: BlockParameters(256, 144),
    QuantizationEncoding.Q5_K: BlockParameters(256, 176),
    QuantizationEncoding.Q6_K: BlockParameters(256, 210),
}
