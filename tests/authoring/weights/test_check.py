from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save

from tidemill.dtype import DType
from tidemill.weights import Checkpoint, MemoryStore
from tidemill.weights.check import WeightKeys, WeightSpec, find_faults

W = np.arange(6, dtype=np.float32).reshape(2, 3)
SPEC = WeightSpec(DType.float32, (2, 3))


def faults(tensors: dict[str, Any], specs: dict[str, WeightSpec], keys: WeightKeys | None = None) -> list[str]:
    checkpoint = Checkpoint(MemoryStore({"w.safetensors": save(tensors)}), ["w.safetensors"])
    entries = {name: located.entry for name, located in checkpoint.entries.items()}
    return find_faults(specs, entries, keys or WeightKeys(), checkpoint)


def test_what_fits_has_no_faults() -> None:
    assert faults({"a": W, "unused": W}, {"a": SPEC}) == []
    assert faults({"key": W}, {"a": SPEC}, WeightKeys(rename={"a": "key"})) == []


def test_all_faults_are_found_at_once() -> None:
    tensors = {"up.weight": W.T.copy(), "gate.weight": W.astype(np.float64), "dwon.weight": W, "both": W[0].astype(int)}
    specs = dict.fromkeys(("up.weight", "gate.weight", "down.weight", "both"), SPEC)
    assert faults(tensors, specs) == [
        "weight 'up.weight' has shape [3, 2], expected [2, 3]",
        "weight 'gate.weight' has dtype float64, expected float32",
        "weight 'down.weight' float32[2, 3] is missing, did you mean 'dwon.weight'?",
        "weight 'both' has shape [3], expected [2, 3] and dtype int64, expected float32",
    ]


def test_a_renamed_weight_that_is_missing_names_its_key() -> None:
    found = faults({"encoder": W}, {"a": SPEC}, WeightKeys(rename={"a": "encodr"}))
    assert found == ["weight 'a' float32[2, 3] (as 'encodr') is missing, did you mean 'encoder'?"]


@pytest.mark.parametrize(
    ("tensors", "expected"),
    [
        ({"embed": W}, []),
        ({"head": W}, []),
        ({"embed": W, "head": W.copy()}, []),
        ({"embed": W, "head": W + 1}, ["tied weight 'embed' stands under 'embed' and 'head' with different values"]),
        (
            {"embed": W, "head": W.T.copy()},
            ["tied weight 'embed' stands under 'embed' and 'head' with different values"],
        ),
        ({"embed": np.full((2, 3), np.nan, np.float32), "head": np.full((2, 3), np.nan, np.float32)}, []),
    ],
    ids=["owner", "alias", "both equal", "values differ", "shapes differ", "nan"],
)
def test_tied_weights_stand_once_or_twice(tensors: dict[str, Any], expected: list[str]) -> None:
    assert faults(tensors, {"embed": SPEC}, WeightKeys(tied={"head": "embed"})) == expected


def test_a_whole_model_that_is_missing_gets_a_few_hints() -> None:
    """To look for something alike among all keys, once for each of thousands of weights, took minutes."""
    specs = {f"layers.{number}.attention.query.weight": SPEC for number in range(3000)}
    entries = {f"blocks.{number}.attn.q.w": W for number in range(3000)}
    found = faults(entries, specs)
    assert len(found) >= 3000
    assert sum("did you mean" in fault for fault in found) <= 8
