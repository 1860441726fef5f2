from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from tidemill.weights import Weights, load_weights

W = np.arange(3, dtype=np.float32)


@pytest.fixture
def weights(tmp_path: Path) -> Weights:
    save_file({"model.layers.0.weight": W, "model.norm": W}, tmp_path / "1.safetensors")
    save_file({"model.layers.1.weight": W + 1, "name": W}, tmp_path / "2.safetensors")
    return load_weights([tmp_path / "1.safetensors", tmp_path / "2.safetensors"])


def test_attributes_and_indices_lead_to_weights(weights: Weights) -> None:
    place = weights.model.layers[1].weight
    assert place.name == "model.layers.1.weight"
    assert place.exists()
    assert not weights.model.layers[2].weight.exists()
    np.testing.assert_array_equal(place.data().to_buffer(), W + 1)
    assert weights["name"].data().shape == (3,)


def test_items_are_sorted_and_below(weights: Weights) -> None:
    assert [name for name, _ in weights.model.layers.items()] == ["model.layers.0.weight", "model.layers.1.weight"]
    assert [name for name, _ in weights.items()] == sorted(name for name, _ in weights.items())
    assert len(list(weights.items())) == 4


def test_a_missing_weight_suggests(weights: Weights) -> None:
    with pytest.raises(KeyError, match=r"did you mean 'model\.norm'"):
        weights.model.nrom.data()
    assert copy.copy(weights.model).name == "model"


@pytest.mark.parametrize(
    ("paths", "text"),
    [
        ([], "has at least one file"),
        (["w.gguf"], "w.gguf is no checkpoint that can be read"),
        (["w.pt"], "w.pt is no checkpoint that can be read"),
        (["a/1.safetensors", "b/2.safetensors"], "must lie in one folder"),
    ],
)
def test_paths_that_are_refused(paths: list[str], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        load_weights(paths)
