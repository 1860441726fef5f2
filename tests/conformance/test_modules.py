"""Module trees against max 26.7: names, order, values, and what happens when attributes change."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tidemill import nn
from tidemill.driver import Buffer
from tidemill.dtype import DType
from tidemill.graph import DeviceRef, QuantizationEncoding, TensorType, Weight, ops
from tidemill.weights import WeightData

CPU = DeviceRef.CPU()
F32 = DType.float32


def weight(name: str = "weight", shape: Any = (2, 3), dtype: DType = F32, **options: Any) -> Weight:
    return Weight(name, dtype, shape, CPU, **options)


class Linear(nn.Module):
    def __init__(self, in_dims: int = 2, out_dims: int = 3) -> None:
        super().__init__()
        self.weight = weight(shape=(in_dims, out_dims))

    def __call__(self, x: Any) -> Any:
        return x @ self.weight.T


class MLP(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up = Linear(5, 10)
        self.gate = Linear(5, 10)
        self.down = Linear(10, 5)

    def __call__(self, x: Any) -> Any:
        return self.down(ops.silu(self.gate(x)) + self.up(x))


class Holder(nn.Module):
    """A module that gets its attributes from outside."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__()
        for name, value in attributes.items():
            setattr(self, name, value)

    def __call__(self, x: Any) -> Any:
        return x


class P(Holder):
    pass


class Omit(Holder):
    @property
    def _omit_module_attr_name(self) -> bool:
        return True


class NoSuper(nn.Module):
    def __init__(self) -> None:
        self.w = weight("w")

    def __call__(self, x: Any) -> Any:
        return x


def keys(module: nn.Module) -> list[str]:
    return list(module.raw_state_dict())


def named(module: nn.Module) -> list[list[str]]:
    return [[prefix, type(part).__name__] for prefix, part in module.named_modules()]


def mlp_values() -> dict[str, np.ndarray[Any, Any]]:
    return {name: np.ones(value.shape, np.float32) for name, value in MLP().state_dict().items()}


def load(module: nn.Module, **changes: Any) -> Any:
    return module.load_state_dict({**mlp_values(), **{name.replace("_", "."): value for name, value in changes.items()}})


def auto_init() -> dict[str, Any]:
    return {
        name: [type(value).__name__, list(value.shape), str(value.dtype), bool((value.to_numpy() == 0).all())]
        for name, value in MLP().state_dict().items()
    }


def idempotent() -> dict[str, bool]:
    model = MLP()
    first, second = model.state_dict(), model.state_dict()
    return {
        "same_buffers": all(first[name] is second[name] for name in first),
        "same_dict": first is second,
    }


def renames() -> dict[str, Any]:
    model = MLP()
    weights = [layer.weight for layer in (model.up, model.gate, model.down)]
    before = [item.name for item in weights]
    model.state_dict()
    return {"before": before, "after": [item.name for item in weights]}


def no_rename() -> list[str]:
    model = MLP()
    model.raw_state_dict()
    return [layer.weight.name for layer in (model.up, model.gate, model.down)]


def load_identity() -> dict[str, Any]:
    model, values = MLP(), mlp_values()
    model.load_state_dict(values)
    stored = model.state_dict()
    return {
        "identity": [stored[name] is values[name] for name in values],
        "types": [type(stored[name]).__name__ for name in values],
        "names": [layer.weight.name for layer in (model.up, model.gate, model.down)],
    }


def reassigned_root() -> dict[str, str]:
    module = Holder(weight=weight(shape=(3,)))
    module.state_dict()
    module.weight = weight(shape=(4,))
    return {name: repr(item) for name, item in module.raw_state_dict().items()}


def deleted_child() -> dict[str, Any]:
    model = MLP()
    del model.up
    return {"raw": keys(model), "sub": list(model.sublayers)}


def weight_dtype_override(override: bool) -> str:
    module = Holder(w=weight("w", (18,), DType.uint8))
    data = WeightData(np.zeros(18, np.uint8), "w", DType.uint8, (18,), QuantizationEncoding.Q4_0)
    module.load_state_dict({"w": data}, override_quantization_encoding=override)
    return repr(module.w)


def tied() -> P:
    model = P(embed=Linear(), head=Holder())
    model.head.set_shared_weight("weight", model.embed.weight)
    return model


def shared_tied() -> dict[str, Any]:
    model = tied()
    return {
        "keys": keys(model),
        "same": model.head.weight is model.embed.weight,
        "shared": list(model.head._state.shared),
        "layer_weights": list(model.head.layer_weights),
    }


def shared_after_rename() -> dict[str, Any]:
    model = P(a=Linear(), b=Holder())
    model.state_dict()
    model.b.set_shared_weight("weight", model.a.weight)
    return {"keys": keys(model), "lw": list(model.b.layer_weights), "shared": list(model.b._state.shared)}


def replaced() -> dict[str, Any]:
    model = MLP()
    model.replace_module("up", Linear(7, 7))
    return {name: [int(dim) for dim in item.shape] for name, item in model.raw_state_dict().items()}


def replaced_by_identity() -> list[str]:
    model = MLP()
    model.replace_module("up", nn.Identity())
    return keys(model)


def traced_weights(module: nn.Module, shape: Any = ("b", 2)) -> list[str]:
    return list(module.trace(TensorType(F32, shape, CPU)).weight_specs)


class Twice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.l = Linear(4, 4)

    def __call__(self, x: Any) -> Any:
        return self.l(self.l(x))


class SameUnderTwo(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = Linear(4, 4)
        self.b = self.a

    def __call__(self, x: Any) -> Any:
        return self.b(self.a(x))


def copied() -> dict[str, Any]:
    model = MLP()
    other = copy.deepcopy(model)
    return {
        "distinct": other.up.weight is not model.up.weight,
        "keys": keys(other),
        "sub_is_attr": other.sublayers["up"] is other.up,
        "lw_is_attr": other.up.layer_weights["weight"] is other.up.weight,
    }


def shared_child() -> P:
    child = Linear()
    return P(a=child, b=child, c=P(d=child))


def cycle() -> P:
    root = P(a=Linear())
    root.me = root
    return root


def named_and_keys(root: nn.Module) -> dict[str, Any]:
    return {"named": named(root), "keys": keys(root)}


def collision(**attributes: Any) -> str:
    try:
        P(**attributes).raw_state_dict()
    except ValueError as error:
        return str(error).split(". Two weights")[0]
    return "none"


MATCHES: dict[str, Callable[[], object]] = {
    "state_dict.auto_init": auto_init,
    "state_dict.auto_init_false": lambda: MLP().state_dict(auto_initialize=False),
    "state_dict.idempotent": idempotent,
    "state_dict.renames": renames,
    "raw_state_dict.no_rename": no_rename,
    "load_state_dict.identity": load_identity,
    "state_dict.order": lambda: keys(Holder(b=weight("b"), child=Holder(weight=weight()), a=weight("a"), z=MLP())),
    "naming.weight_name_wins": lambda: {
        "keys": keys(P(c=Holder(foo=weight("bar")))),
        "layer_weights": list(Holder(foo=weight("bar")).layer_weights),
    },
    "naming.dotted_weight": lambda: keys(P(c=Holder(w=weight("layers.0.weight")))),
    "setattr.reassign_weight_after_state_dict_root": reassigned_root,
    "delattr.module": deleted_child,
    "init.no_super": lambda: keys(NoSuper()),
    "repr": lambda: repr(MLP()),
    "repr.linear": lambda: [repr(Linear(2, 3)), repr(Linear(2, 3).weight)],
    "containers.layerlist": lambda: {
        "keys": keys(P(layers=nn.LayerList([Linear(), Linear()]))),
        "named": [prefix for prefix, _ in P(layers=nn.LayerList([Linear(), Linear()])).named_modules()],
    },
    "containers.sequential": lambda: {"keys": keys(P(layers=nn.Sequential([Linear(), Linear()])))},
    "layerlist.slice": lambda: type(nn.LayerList([Linear()])[0:1]).__name__,
    "layerlist.iter": lambda: [
        len(nn.LayerList([Linear()])),
        [type(layer).__name__ for layer in nn.LayerList([Linear()])],
        str(nn.LayerList([Linear()])),
    ],
    "layerlist.missing": lambda: keys(nn.LayerList([Linear(), nn.MissingLayer(1), Linear()])),
    "load.missing_strict": lambda: MLP().load_state_dict(
        {name: value for name, value in mlp_values().items() if name != "up.weight"}
    ),
    "load.wrong_shape": lambda: load(MLP(), up_weight=np.ones((10, 5), np.float32)),
    "load.wrong_dtype": lambda: load(MLP(), up_weight=np.ones((5, 10))),
    "load.wrong_shape_dtype": lambda: load(MLP(), up_weight=np.ones((10, 5))),
    "load.python_list": lambda: load(MLP(), up_weight=[[1.0] * 10] * 5),
    "load.readonly_numpy": lambda: load(MLP(), up_weight=_read_only(np.ones((5, 10), np.float32))) and "accepted",
    "load.scalar_vs_1_numpy": lambda: Holder(w=weight("w", ())).load_state_dict({"w": np.ones(1, np.float32)}),
    "load.scalar_vs_1_weightdata": lambda: _loaded_scalar(),
    "load.weightdata_wrong_shape": lambda: Holder(w=weight("w", (3,))).load_state_dict(
        {"w": WeightData.from_numpy(np.ones(2, np.float32), "w")}
    ),
    "load.symbolic_weight_rank": lambda: Holder(w=weight("w", ("n", 3))).load_state_dict(
        {"w": np.ones((7, 4), np.float32)}
    ),
    "load.symbolic_weight_rank2": lambda: Holder(w=weight("w", ("n", 3))).load_state_dict(
        {"w": np.ones(7, np.float32)}
    ),
    "load.unaligned_weight_alignment_1": lambda: _unaligned(weight_alignment=1),
    "quant.override_true": lambda: weight_dtype_override(True),
    "quant.override_false": lambda: weight_dtype_override(False),
    "quant.numpy_shape": lambda: Holder(
        w=weight("w", (3,), DType.uint8, quantization_encoding=QuantizationEncoding.Q4_0)
    ).load_state_dict({"w": np.zeros(18, np.uint8)}),
    "named_modules.bfs": lambda: named(P(a=P(x=Linear(), y=Linear()), b=Linear(), c=P(z=MLP()))),
    "named_modules.shared_once": lambda: named(shared_child()),
    "named_modules.shared_shallow_wins": lambda: _shallow(),
    "named_modules.type": lambda: type(MLP().named_modules()).__name__,
    "named_modules.cycle": lambda: named_and_keys(cycle()),
    "omit.prefix": lambda: named(P(attn=P(qkv=Omit(q=Linear(), k=Linear()), o=Linear()))),
    "omit.keys": lambda: keys(P(attn=P(qkv=Omit(q=Linear(), k=Linear()), o=Linear()))),
    "omit.root": lambda: keys(Omit(q=Linear())),
    "omit.nested": lambda: keys(P(a=Omit(b=Omit(c=Linear())))),
    "omit.own_weight": lambda: keys(P(a=Omit(w=weight("w")))),
    "shared.tied": shared_tied,
    "shared.after_rename": shared_after_rename,
    "replace_module.keyerror": lambda: MLP().replace_module("nope", Linear()),
    "replace_module.ok": replaced,
    "replace_module.identity": replaced_by_identity,
    "reuse.same_instance_two_attrs": lambda: {
        "keys": keys(SameUnderTwo()),
        "graph_weights": traced_weights(SameUnderTwo(), ("b", 4)),
    },
    "reuse.called_twice": lambda: ["l.weight"] and traced_weights(Twice(), ("b", 4)),
    "deepcopy.fresh": copied,
    "pickle": lambda: isinstance(pickle.loads(pickle.dumps(MLP())), MLP),
}


def _read_only(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    array.flags.writeable = False
    return array


def _loaded_scalar() -> dict[str, Any]:
    module = Holder(w=weight("w", ()))
    module.load_state_dict({"w": WeightData.from_numpy(np.ones(1, np.float32), "w")})
    return {"stored": list(module.state_dict()["w"].shape), "weight_shape": str(list(module.w.shape))}


def _unaligned(**options: Any) -> dict[str, Any]:
    module = Holder(weight=weight(shape=(4,)))
    array = np.frombuffer(bytes(17), np.float32, 4, offset=1)
    module.load_state_dict({"weight": array}, **options)
    return {"align": module.weight.align}


def _shallow() -> dict[str, Any]:
    child = Linear()
    return named_and_keys(P(a=P(deep=child), b=child))


@pytest.mark.parametrize("case", MATCHES)
def test_behaves_as_observed(case: str, observed: dict[str, dict[str, Any]]) -> None:
    expected = observed[case]
    if expected["outcome"] == "ok":
        assert MATCHES[case]() == expected["observed"]
        return
    with pytest.raises(Exception) as caught:
        MATCHES[case]()
    assert f"{type(caught.value).__name__}: {caught.value}" == expected["observed"]


# What is deliberately better than observed; docs/compatibility.md lists it with the reasons.


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
    assert _unaligned() == {"align": 4}
    with pytest.raises(ValueError, match=r"unaligned weight 'weight' \(expected alignment=8\)"):
        _unaligned(weight_alignment=8)


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
