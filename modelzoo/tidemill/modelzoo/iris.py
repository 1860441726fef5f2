"""Four measures of an iris to its species: multinomial logistic regression, the "hello world" of model servers.

The fifteen numbers were fitted by scikit-learn 1.9.1 (`LogisticRegression(max_iter=1000)`) on Fisher's 150 flowers.
"""

from __future__ import annotations

from os import PathLike
from pathlib import Path

import numpy as np

from tidemill import nn
from tidemill.dtype import DType
from tidemill.graph import DeviceRef, TensorType, TensorValue, ops
from tidemill.modelzoo.settings import write_settings
from tidemill.modelzoo.zoo_model import Inputs

__all__ = ["SPECIES", "Iris", "build", "example_inputs"]

SPECIES = ("setosa", "versicolor", "virginica")

_WEIGHT = (
    (-0.42415938, 0.96633485, -2.5160372, -1.08205245),
    (0.53464109, -0.32039706, -0.20702001, -0.94324899),
    (-0.11048172, -0.64593779, 2.72305721, 2.02530144),
)
_BIAS = (9.85533212, 2.23415948, -12.0894916)


class Iris(nn.Module):
    """softmax(W x + b)."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3, DType.float32, has_bias=True)

    def __call__(self, flower: TensorValue) -> dict[str, TensorValue]:
        """float32 [batch, 4], sepal length and width, petal length and width in cm -> the species and all scores."""
        logits = self.linear(flower)
        return {
            "species": ops.squeeze(ops.argmax(logits), -1),
            "probability": ops.softmax(logits),
            "logits": logits,
        }


def build(repository: Path, weights: str | PathLike[str] | None = None) -> None:
    """Write `repository/iris/1` and the names of the species beside it."""
    fitted = {"linear.weight": np.array(_WEIGHT, np.float32), "linear.bias": np.array(_BIAS, np.float32)}
    flower = TensorType(DType.float32, ["batch", 4], DeviceRef.CPU())
    Iris().bundle(flower, weights=weights or fitted, name="iris").write(repository / "iris" / "1")
    (repository / "iris" / "species.txt").write_text("\n".join(SPECIES) + "\n")
    write_settings(repository / "iris" / "model.yaml", "labels:\n  probability: species.txt\n")


def example_inputs() -> Inputs:
    """The two flowers that other servers' samples ask about; both are versicolor."""
    return {"flower": np.array([[6.8, 2.8, 4.8, 1.4], [6.0, 3.4, 4.5, 1.6]], np.float32)}
