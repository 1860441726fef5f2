"""How the bytes of a quantised weight encode numbers; the names are llama.cpp's and GPTQ's."""

from __future__ import annotations

from enum import Enum

__all__ = ["QuantizationEncoding"]


class QuantizationEncoding(Enum):
    """The packing of a weight whose dtype is uint8."""

    Q4_0 = "Q4_0"
    Q4_K = "Q4_K"
    Q5_K = "Q5_K"
    Q6_K = "Q6_K"
    GPTQ = "GPTQ"
