"""Where modules are deliberately better than max 26.7; docs/compatibility.md lists it with the reasons."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from seed_modules import (
    CPU,
    F32,
    MLP,
    Holder,
    Linear,
    Omit,
    P,
    keys,
    load,
    mlp_values,
    traced_weights,
    unaligned,
    weight,
)

from tidemill import nn
from tidemill.driver import Buffer
from tidemill.graph import TensorType


def collision(**attributes: Any) -> str:
    try:
        P(**attributes).raw_state_dict()
    except ValueError as error:
        return str(error).split(". Two weights")[0]
    return "none"


def test_two_weights_of_one_name_are_an_error() -> None:
    """naming.two_weights_same_name_one_layer."""
    with pytest.raises(ValueError, match="Holder already has a weight named 'weight'"):
        Holder(a=weight(), b=weight())


def test_a_child_weight_can_be_replaced_after_renaming() -> None:
    """setattr.reassign_weight_after_state_dict_child."""
    model = MLP()
    model.state_dict()
    model.up.weight = weight(shape=(4, 10))
    assert {name: [int(dim) for dim in item.shape] for name, item in model.raw_state_dict().items()}["up.weight"] == [
        4,
        10,
    ]


def test_none_takes_a_weight_or_module_out() -> None:
    """setattr.weight_to_none, setattr.module_to_none."""
    holder, model = Holder(weight=weight()), MLP()
    holder.weight = None
    model.up = None
    assert (keys(holder), keys(model)) == ([], ["gate.weight", "down.weight"])


def test_deleting_an_attribute_takes_its_weight_out() -> None:
    """delattr.weight_name_differs."""
    holder = Holder(foo=weight("bar"))
    del holder.foo
    assert keys(holder) == []


def test_a_module_that_never_called_super_is_an_empty_module() -> None:
    """init.no_super_no_weight."""

    class Bare(nn.Module):
        def __init__(self) -> None:
            pass

        def __call__(self, x: Any) -> Any:
            return x

    assert Bare().state_dict() == {}


def test_call_must_be_written() -> None:
    """init.abstract; Python's words differ between versions."""

    class NoCall(nn.Module):
        pass

    with pytest.raises(TypeError, match=r"abstract (class|method).*__call__"):
        NoCall()  # type: ignore[abstract]


@pytest.mark.parametrize("container", [list, tuple, lambda items: dict(enumerate(items))])
def test_plain_containers_of_modules_are_left_out_with_a_warning(container: Callable[[Any], Any]) -> None:
    """containers.dict, containers.tuple, containers.list."""
    holder = Holder()
    with pytest.warns(UserWarning, match=r"Holder\.parts is a plain .* of modules.*LayerList"):
        holder.parts = container([Linear(), Linear()])
    assert keys(holder) == []


def test_a_layer_list_keeps_in_step_with_every_change() -> None:
    """layerlist.append, layerlist.setitem, layerlist.delitem, replace_module.layerlist."""
    layers = nn.LayerList([Linear(1, 1), Linear(2, 2)])
    layers.append(Linear(3, 3))
    layers.insert(0, Linear(4, 4))
    new = Linear(5, 5)
    layers[1] = new
    del layers[0]
    layers.extend([Linear(6, 6)])
    sizes = {name: int(item.shape[0]) for name, item in layers.raw_state_dict().items()}
    assert sizes == {"0.weight": 5, "1.weight": 2, "2.weight": 3, "3.weight": 6}
    replacement = Linear(7, 7)
    layers.replace_module("0", replacement)
    assert layers[0] is replacement
    assert layers[0] is layers.sublayers["0"]


def test_a_layer_list_takes_only_modules() -> None:
    """layerlist.nonmodule: MAX raises a ValueError, and later."""
    with pytest.raises(TypeError, match="LayerList holds modules, not <function"):
        nn.LayerList([lambda x: x])  # type: ignore[list-item]


def test_a_tolerant_load_says_what_it_left_aside() -> None:
    """load.nonstrict, load.nonstrict_then_state."""
    model = MLP()
    values = mlp_values()
    values["up.wieght"] = values.pop("up.weight")
    report = model.load_state_dict(values, strict=False)
    assert report == (("up.weight",), ("up.wieght",))
    assert [layer.weight.name for layer in (model.up, model.gate, model.down)] == [
        "weight",
        "gate.weight",
        "down.weight",
    ]
    with pytest.raises(ValueError, match=r"Weight 'up\.weight' was not initialized\."):
        model.state_dict(auto_initialize=False)


def test_a_failed_load_changes_nothing() -> None:
    """load.strict_not_atomic."""
    model, values = MLP(), mlp_values()
    values["down.weight"] = values["down.weight"].astype(np.float64)
    with pytest.raises(ValueError, match="dtype"):
        model.load_state_dict(values)
    with pytest.raises(ValueError, match=r"up\.weight' was not initialized"):
        model.state_dict(auto_initialize=False)


def test_all_faults_of_a_load_are_listed() -> None:
    with pytest.raises(ValueError, match=r"(?s)'up\.weight' had different shape.*'down\.weight' had different dtype"):
        load(MLP(), up_weight=np.ones((1, 1), np.float32), down_weight=np.ones((10, 5)))


def test_a_value_of_none_is_named() -> None:
    """load.none_value."""
    with pytest.raises(ValueError, match=r"Missing required weights: up\.weight; The value is None for: up\.weight"):
        load(MLP(), up_weight=None)


@pytest.mark.parametrize(
    "view",
    [
        lambda w: np.asfortranarray(w),
        lambda w: np.ascontiguousarray(w.T).T,
        lambda w: np.repeat(w, 2, axis=1)[:, ::2],
        lambda w: w[::-1][::-1],
    ],
    ids=["fortran", "transposed", "strided", "reversed twice"],
)
def test_any_layout_is_loaded_as_its_values(view: Callable[[Any], Any]) -> None:
    """load.noncontiguous, B19: a copy in C order; the caller's array stays as it is."""
    array = np.arange(50, dtype=np.float32).reshape(5, 10)
    given = view(array)
    flags, before = given.flags.c_contiguous, given.copy()
    model = MLP()
    load(model, up_weight=given)
    stored = model.state_dict()["up.weight"]
    assert stored.flags.c_contiguous
    np.testing.assert_array_equal(stored, array)
    np.testing.assert_array_equal(given, before)
    assert given.flags.c_contiguous == flags


def test_unaligned_values_are_taken_unless_an_alignment_is_asked_for() -> None:
    """load.unaligned: the run copies what is not aligned."""
    assert unaligned() == {"align": 4}
    with pytest.raises(ValueError, match=r"unaligned weight 'weight' \(expected alignment=8\)"):
        unaligned(weight_alignment=8)


def test_a_symbolic_weight_is_never_invented() -> None:
    """state_dict.symbolic_weight_autoinit: MAX drops the symbolic dim."""
    with pytest.raises(ValueError, match=r"Weight 'w' has the symbolic shape \[n, 3\]"):
        Holder(w=weight("w", ("n", 3))).state_dict()


def test_two_paths_to_one_name_are_an_error() -> None:
    """omit.collision, omit.collision_sibling: the facts as observed, the advice in our words."""
    both = "Duplicate weight FQN 'q.weight' produced by two distinct attribute paths: "
    assert collision(a=Omit(q=Linear()), b=Omit(q=Linear())) == f"{both}'a.q' and 'b.q'"
    assert collision(q=Linear(), b=Omit(q=Linear())) == f"{both}'q' and 'b.q'"


def test_sharing_goes_by_identity() -> None:
    """shared.other_attr_name, shared.other_attr_name_no_own, shared.trace."""
    model = P(embed=Linear(4, 4), head=Linear(4, 4))
    model.head.set_shared_weight("tied", model.embed.weight)
    assert keys(model) == ["embed.weight", "head.weight"]
    bare = P(e=Linear(), h=Holder())
    bare.h.set_shared_weight("tied", bare.e.weight)
    assert keys(bare) == ["e.weight"]


def test_a_tied_weight_is_one_weight_of_the_graph() -> None:
    """shared.trace."""

    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.head = Linear(4, 4), Linear(4, 4)
            self.head.set_shared_weight("weight", self.embed.weight)

        def __call__(self, x: Any) -> Any:
            return self.head(self.embed(x))

    assert traced_weights(Tied(), ("b", 4)) == ["embed.weight"]
    assert Tied()._tied_names() == {"head.weight": "embed.weight"}


def test_a_stale_value_is_dropped() -> None:
    """replace_module.stale_value."""
    model = MLP()
    model.state_dict()
    model.replace_module("up", Linear(7, 7))
    assert list(model.state_dict()["up.weight"].shape) == [7, 7]


def test_modules_copy_after_a_trace() -> None:
    """deepcopy.after_trace, trace.twice."""
    model = MLP()
    first = model.trace(TensorType(F32, ("b", 10), CPU))
    other = copy.deepcopy(model)
    second = other.trace(TensorType(F32, ("b", 10), CPU))
    assert list(first.weight_specs) == list(second.weight_specs)


def test_a_buffer_of_zeros_is_a_buffer() -> None:
    value = MLP().state_dict()["up.weight"]
    assert isinstance(value, Buffer)
    assert repr(value) == "Buffer([5, 10], DType.float32)"
