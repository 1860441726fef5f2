"""The mixture-of-experts block of Mixtral: each token goes through the two experts it suits best (Jiang et al., 2024).

Names are Hugging Face's (`gate.weight`, `experts.N.w1`, ...). A part of a model: it is traced, bundled and served like
any other.
"""

from __future__ import annotations

from dataclasses import dataclass
from os import PathLike
from pathlib import Path

import numpy as np

from tidemill import nn
from tidemill.dtype import DType
from tidemill.graph import DeviceRef, TensorType, TensorValue, ops
from tidemill.modelzoo.package_files import required_weights
from tidemill.modelzoo.zoo_model import Inputs

__all__ = ["Config", "SparseMoE", "build", "example_inputs"]


@dataclass(frozen=True)
class Config:
    """The sizes."""

    hidden: int = 256
    intermediate: int = 512
    experts: int = 8
    chosen: int = 2


class Expert(nn.Module):
    """w2(silu(w1(x)) * w3(x)); all experts are one function."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.w1 = nn.Linear(config.hidden, config.intermediate, DType.float32)
        self.w2 = nn.Linear(config.intermediate, config.hidden, DType.float32)
        self.w3 = nn.Linear(config.hidden, config.intermediate, DType.float32)

    def __call__(self, x: TensorValue) -> TensorValue:
        """[tokens, hidden] -> [tokens, hidden]."""
        return self.w2(ops.silu(self.w1(x)) * self.w3(x))


class SparseMoE(nn.Module):
    """A token's scores choose its experts; their outputs are mixed by the softmax of the chosen scores."""

    def __init__(self, config: Config | None = None) -> None:
        super().__init__()
        config = config or Config()
        self.chosen = config.chosen
        self.gate = nn.Linear(config.hidden, config.experts, DType.float32)
        self.experts = nn.LayerList([Expert(config) for _ in range(config.experts)])

    def __call__(self, hidden: TensorValue) -> dict[str, TensorValue]:
        """float32 [batch, seq, hidden] -> mixed, the same."""
        tokens = hidden.reshape([-1, hidden.shape[-1]])
        scores, chosen = ops.top_k(self.gate(tokens), self.chosen, axis=-1)
        outputs = ops.dispatch(tokens, chosen, list(self.experts))
        mixed = ops.unsqueeze(ops.softmax(scores), 1) @ outputs
        return {"mixed": mixed.reshape(hidden.shape)}


def build(repository: Path, weights: str | PathLike[str] | None = None) -> None:
    """Write `repository/mixtral-moe/1` over a checkpoint of one block."""
    bundle = SparseMoE().bundle(
        input_type(Config()), weights=required_weights("mixtral-moe", weights), name="mixtral-moe"
    )
    bundle.write(repository / "mixtral-moe" / "1")


def example_inputs() -> Inputs:
    """Four tokens of noise."""
    return {"hidden": np.random.default_rng(0).standard_normal((1, 4, Config().hidden)).astype(np.float32)}


def input_type(config: Config) -> TensorType:
    """The type of the tokens."""
    return TensorType(DType.float32, ["batch", "seq", config.hidden], DeviceRef.CPU())
