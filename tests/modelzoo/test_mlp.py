"""The seed's MLP against numpy."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tidemill.bundle import open_bundle
from tidemill.engine import Instance
from tidemill.modelzoo import ZOO
from tidemill.weights import open_safetensors


def test_the_mlp_computes_what_numpy_does(tmp_path: Path) -> None:
    ZOO["mlp"].build(tmp_path)
    folder = tmp_path / "mlp" / "1"
    weights = open_safetensors(folder / "weights.safetensors")
    x = np.random.default_rng(1).standard_normal((4, 10), np.float32)
    gate = x @ weights["gate.weight"].T
    expected = (gate / (1 + np.exp(-gate)) + x @ weights["up.weight"].T) @ weights["down.weight"].T
    output = Instance.open(open_bundle(folder)).run({"x": x})["output"]
    np.testing.assert_allclose(output, expected, rtol=1e-4, atol=1e-5)
