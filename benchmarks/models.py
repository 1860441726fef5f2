"""The models that servers are compared on, written with the authoring API over random weights of a fixed seed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from tidemill import nn
from tidemill.dtype import DType
from tidemill.graph import TensorType, TensorValue, ops
from tidemill.modelzoo.minilm import MiniLM

__all__ = ["MODELS", "Feed", "Model", "build"]

Feed = Mapping[str, Any]
"""Arrays by input name, one row each."""

_F32 = DType.float32
_VOCABULARY = 30522
_MEGABYTE_OF_FLOATS = 1 << 18


class SmallMLP(nn.Module):
    """The model that costs nothing: what is left is the server."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(16, 16, _F32, has_bias=True)
        self.down = nn.Linear(16, 16, _F32, has_bias=True)

    def __call__(self, x: TensorValue) -> dict[str, TensorValue]:
        """[batch, 16] -> y [batch, 16]."""
        return {"y": self.down(ops.relu(self.up(x)))}


class SmallCNN(nn.Module):
    """Four halving convolutions, the mean over the picture, a classifier: about 0.4 GFLOP a picture."""

    def __init__(self) -> None:
        super().__init__()
        channels = [3, 32, 64, 128, 256]
        self.convolutions = nn.LayerList(
            nn.Conv2d(3, a, b, _F32, stride=2, padding=1, permute=True, has_bias=True) for a, b in pairwise(channels)
        )
        self.classifier = nn.Linear(channels[-1], 1000, _F32, has_bias=True)

    def __call__(self, x: TensorValue) -> dict[str, TensorValue]:
        """[batch, 3, 224, 224] -> y [batch, 1000]."""
        for convolution in self.convolutions:
            x = ops.relu(convolution(x))
        return {"y": self.classifier(ops.squeeze(ops.mean(ops.flatten(x, 2)), -1))}


class Identity(nn.Module):
    """What came in, by way of one sum: ONNX Runtime has to write 1 MB, as any model of that size has."""

    def __call__(self, x: TensorValue) -> dict[str, TensorValue]:
        """[batch, 262144] -> y, the same numbers."""
        return {"y": x + 0.0}


@dataclass(frozen=True)
class Model:
    """One line of the comparison.

    Attributes:
        module: Makes the module.
        types: Of its inputs.
        served: The name that it is served under.
        lengths: Fewest and most tokens of a request; (0, 0) where nothing varies.
        config: What model.yaml says.
        batches: Rows a run of the bare runtime.
    """

    module: Callable[[], nn.Module]
    types: tuple[TensorType, ...]
    served: str
    lengths: tuple[int, int] = (0, 0)
    config: str = ""
    batches: tuple[int, ...] = (1, 8, 32)

    def feed(self, rng: np.random.Generator) -> Feed:
        """One row of noise, or of token ids and their mask."""
        if self.lengths[1]:
            ids = rng.integers(1, _VOCABULARY, (1, int(rng.integers(self.lengths[0], self.lengths[1] + 1))))
            return {"input_ids": ids, "attention_mask": np.ones_like(ids)}
        shape = [1, *(int(dim) for dim in self.types[0].shape[1:])]
        return {"x": rng.standard_normal(shape, np.float32)}


_IDS = TensorType(DType.int64, ["batch", "seq"])
_PADDED = "batching:\n  ragged:\n    pad: {input_ids: 0, attention_mask: 0}\n"

MODELS: dict[str, Model] = {
    "mlp16": Model(SmallMLP, (TensorType(_F32, ["batch", 16]),), "mlp16"),
    "cnn": Model(SmallCNN, (TensorType(_F32, ["batch", 3, 224, 224]),), "cnn"),
    "encoder64": Model(MiniLM, (_IDS, _IDS), "encoder", (64, 64), _PADDED),
    "encoder8to32": Model(MiniLM, (_IDS, _IDS), "encoder", (8, 32), _PADDED),
    "encoder8to256": Model(MiniLM, (_IDS, _IDS), "encoder", (8, 256), _PADDED),
    "megabyte": Model(Identity, (TensorType(_F32, ["batch", _MEGABYTE_OF_FLOATS]),), "megabyte", batches=(1, 8)),
}


def build(names: list[str], repository: Path) -> None:
    """Write what is not there yet, each model into a repository of its own: `repository/NAME/NAME/1`."""
    for model in (MODELS[name] for name in names):
        folder = repository / model.served / model.served
        if not (folder / "1" / "bundle.json").exists():
            module = model.module()
            module.load_state_dict(_weights(module))
            module.bundle(*model.types, name=model.served).write(folder / "1")
            if model.config:
                (folder / "model.yaml").write_text(model.config, encoding="utf-8")


def _weights(module: nn.Module) -> dict[str, Any]:
    """Small numbers, so that values neither die out nor overflow on their way through the layers."""
    rng = np.random.default_rng(0)
    shapes = {name: value.shape for name, value in module.state_dict().items()}
    return {name: (rng.standard_normal(shape) * 0.05).astype(np.float32) for name, shape in shapes.items()}
