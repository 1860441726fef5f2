"""Module trees against max 26.7: names, order, values, and what happens when attributes change."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from seed_modules import (
    MLP,
    Holder,
    Linear,
    NoSuper,
    Omit,
    P,
    keys,
    load,
    mlp_values,
    named,
    traced_weights,
    unaligned,
    weight,
)

from tidemill import nn
from tidemill.dtype import DType
from tidemill.graph import QuantizationEncoding
from tidemill.weights import WeightData


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
    "load.unaligned_weight_alignment_1": lambda: unaligned(weight_alignment=1),
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


def _shallow() -> dict[str, Any]:
    child = Linear()
    return named_and_keys(P(a=P(deep=child), b=child))


@pytest.mark.parametrize("case", MATCHES)
def test_behaves_as_observed(case: str, observed: dict[str, dict[str, Any]]) -> None:
    expected = observed[case]
    if expected["outcome"] == "ok":
        assert MATCHES[case]() == expected["observed"]
        return
    with pytest.raises(Exception) as caught:  # noqa: PT011  (class and text are compared below)
        MATCHES[case]()
    assert f"{type(caught.value).__name__}: {caught.value}" == expected["observed"]
