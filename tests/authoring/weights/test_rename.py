from __future__ import annotations

import numpy as np
import pytest
from safetensors.numpy import save

from tidemill.weights import Checkpoint, MemoryStore
from tidemill.weights.check import WeightKeys
from tidemill.weights.rename import check_rename, common_prefix, expand_rename, key_of

RULES = {
    "layers.*.up.*": "blk.*.ffn_up.*",
    "head": "output",
    "**": "model.**",
}


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("layers.11.up.weight", "blk.11.ffn_up.weight"),
        ("head", "output"),
        ("a.b.c", "model.a.b.c"),
        ("layers.1.2.up.weight", "model.layers.1.2.up.weight"),
        ("layersX1.up.weight", "model.layersX1.up.weight"),
    ],
)
def test_a_rule_leads_from_a_name_to_its_key_and_back(name: str, key: str) -> None:
    assert key_of(RULES, name) == key
    assert expand_rename(RULES, [key]).get(name) == key


def test_a_name_without_a_rule_is_its_own_key() -> None:
    assert key_of({"a": "b"}, "c") == "c"
    assert WeightKeys({"**": "m.**"}, {"tied": "w"}).candidates("w") == ["m.w", "m.tied"]


@pytest.mark.parametrize(("name", "key"), [("a.*", "b"), ("a", "b.*"), ("**", "*"), ("*.**", "**.*")])
def test_both_sides_have_the_same_wildcards(name: str, key: str) -> None:
    with pytest.raises(ValueError, match="must have the same '\\*' and '\\*\\*' in the same order"):
        check_rename({name: key})


def test_exact_rules_go_before_patterns_and_patterns_in_order() -> None:
    rules = {"**": "m.**", "x.*": "y.*", "w": "m.a"}
    assert expand_rename(rules, ["m.a", "m.b", "y.c"]) == {"w": "m.a", "b": "m.b", "x.c": "y.c"}


def test_a_checkpoint_seen_through_patterns() -> None:
    values = np.arange(3, dtype=np.float32)
    store = MemoryStore({"w.safetensors": save({"model.a.w": values, "other": values + 1})})
    checkpoint = Checkpoint(store, ["w.safetensors"], rename={"**": "model.**"})
    assert sorted(checkpoint) == ["a.w", "other"]
    np.testing.assert_array_equal(checkpoint["a.w"], values)


@pytest.mark.parametrize(
    ("wanted", "keys", "prefix"),
    [
        (["a.w", "b"], ["model.b", "model.a.w", "x"], "model."),
        (["a.w", "b"], ["model.b", "other.a.w"], ""),
        ([], ["x"], ""),
        (["w"], ["w2"], ""),
    ],
)
def test_a_prefix_of_all_is_recognised(wanted: list[str], keys: list[str], prefix: str) -> None:
    assert common_prefix(wanted, keys) == prefix
