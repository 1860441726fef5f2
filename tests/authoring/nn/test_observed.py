"""Layers against what was observed of max 26.7.0: state dict keys, shapes and dtypes, output types, errors."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tidemill import nn
from tidemill.dtype import DType
from tidemill.graph import DeviceRef, TensorType

CPU = DeviceRef.CPU()
F32 = DType.float32
CASES = {
    case["case"]: case
    for case in json.loads((Path(__file__).parents[2] / "data/conformance/max-module.json").read_text())
}

# Case -> the layer, and what it is called with; None where only the weights were observed.
LAYERS: dict[str, tuple[Callable[[], nn.Module], TensorType | None]] = {
    "layer.Linear": (lambda: nn.Linear(8, 6, F32, CPU, has_bias=True), TensorType(F32, ["b", 8])),
    "layer.Linear_name": (lambda: nn.Linear(8, 6, F32, CPU, has_bias=True, name="proj"), None),
    "layer.Linear_clip": (lambda: nn.Linear(8, 6, F32, CPU, clip_weight=1.0), None),
    "layer.Embedding_int64": (lambda: nn.Embedding(100, 8, F32, CPU), TensorType(DType.int64, ["b"])),
    "layer.RMSNorm": (lambda: nn.RMSNorm(8, F32), TensorType(F32, ["b", 8])),
    "layer.LayerNorm": (lambda: nn.LayerNorm(8, [CPU], F32), TensorType(F32, ["b", 8])),
    "layer.ConstantLayerNorm": (lambda: nn.ConstantLayerNorm(8, CPU, F32), TensorType(F32, ["b", 8])),
    "layer.GroupNorm": (lambda: nn.GroupNorm(2, 8), TensorType(F32, ["b", 8, 4, 4])),
    "layer.Conv2d": (lambda: nn.Conv2d(3, 4, 6, F32, padding=1, has_bias=True), TensorType(F32, ["b", 16, 16, 4])),
    "layer.Conv2d_permute": (
        lambda: nn.Conv2d(3, 4, 6, F32, padding=1, has_bias=True, permute=True),
        TensorType(F32, ["b", 4, 16, 16]),
    ),
    "layer.Conv3D": (lambda: nn.Conv3D(3, 3, 3, 4, 6, F32, permute=True), TensorType(F32, ["b", 4, 8, 8, 8])),
    "layer.ConvTranspose1d": (lambda: nn.ConvTranspose1d(3, 4, 6, F32, permute=True), TensorType(F32, ["b", 4, 16])),
    "layer.MLP_gelu": (lambda: nn.MLP(F32, None, 8, 16, [CPU], has_bias=True, activation_function="gelu"), None),
    "layer.FusedMLP": (lambda: nn.FusedMLP(F32, 8, 16, [CPU]), None),
    "layer.MultiheadAttention": (lambda: nn.MultiheadAttention(2, 8, [CPU], F32), TensorType(F32, ["b", "s", 8])),
    "layer.MultiheadAttention_stacked": (lambda: nn.MultiheadAttention(2, 8, [CPU], F32, stacked_qkv=True), None),
    "layer.RotaryEmbedding": (lambda: nn.RotaryEmbedding(8, 2, 10000.0, 16), None),
    "layer.Identity": (nn.Identity, TensorType(F32, ["b"])),
    "layer.Sequential": (
        lambda: nn.Sequential([nn.Linear(8, 8, F32, CPU), nn.Linear(8, 4, F32, CPU)]),
        TensorType(F32, ["b", 8]),
    ),
    "layer.MoE": (lambda: nn.MoE([CPU], 8, 4, 2, 16, dtype=F32), None),
}


def described(layer: nn.Module) -> dict[str, list[Any]]:
    return {name: [one.dtype.name, one.shape.static_dims] for name, one in layer.raw_state_dict().items()}


@pytest.mark.parametrize("case", LAYERS)
def test_weights_and_results(case: str) -> None:
    make, given = LAYERS[case]
    layer, observed = make(), CASES[case]["observed"]
    weights = observed if given is None else observed["weights"]
    expected = {name: one if isinstance(one[0], str) else ["float32", one] for name, one in weights.items()}
    assert described(layer) == expected
    if given is None:
        return
    (result,) = layer.trace(given).output_types
    shape = ", ".join(f"Dim({dim!s})" if str(dim).isdigit() else f"Dim('{dim}')" for dim in result.shape)
    assert [f"TensorType(dtype={result.dtype.name}, shape=[{shape}], device={result.device})"] == observed["out"]


class SelfAttention(nn.Module):
    def __init__(self, stacked: bool) -> None:
        super().__init__()
        self.qkv_proj = nn.StackedLinear(4, [4, 2, 2], ["q_proj", "k_proj", "v_proj"], F32, CPU, stacked, has_bias=True)

    def __call__(self, x: Any) -> Any:
        return self.qkv_proj(x)


class Block(nn.Module):
    def __init__(self, stacked: bool) -> None:
        super().__init__()
        self.self_attn = SelfAttention(stacked)

    def __call__(self, x: Any) -> Any:
        return self.self_attn(x)


class Halved(nn.Linear):
    """A stranger's kind of Linear."""


def separate() -> nn.StackedLinear:
    return nn.StackedLinear(4, [4, 2, 2], ["q_proj", "k_proj", "v_proj"], F32, CPU)


def test_stacked_linear_names() -> None:
    for case, stacked in {"stacked.unfused": False, "stacked.stacked": True}.items():
        shapes = {name: one.shape.static_dims for name, one in Block(stacked).raw_state_dict().items()}
        assert shapes == CASES[case]["observed"]
    assert list(separate().raw_state_dict()) == CASES["stacked.default"]["observed"]
    layer = nn.StackedLinear(4, [2, 2], ["a", "b"], F32, CPU, linear_cls=Halved)
    assert described(layer) == CASES["layer.StackedLinear_custom_cls"]["observed"]


def test_stacked_linear_trace() -> None:
    observed = CASES["stacked.trace"]["observed"]
    graph = separate().trace(TensorType(F32, ["b", 4]))
    assert sorted(graph.weight_specs) == sorted(observed["weights"])
    assert [str(dim) for dim in graph.output_types[0].shape] == ["b", "8"]


def test_stacked_linear_with_too_few_names() -> None:
    with pytest.raises(ValueError, match=re.escape(CASES["stacked.names_mismatch"]["message"])):
        nn.StackedLinear(4, [4, 2], ["q_proj"], F32, CPU)


def test_linear_names_the_dims_that_differ() -> None:
    """layer.Linear_wrong_in: the sentence with the dims is the observed one, the operator's name is ours."""
    message = CASES["layer.Linear_wrong_in"]["message"]
    sentence = next(line.strip() for line in message.splitlines() if "Matrix multiplication" in line)
    with pytest.raises(ValueError, match="Matrix multiplication") as caught:
        nn.Linear(8, 6, F32, CPU).trace(TensorType(F32, ["b", 7]))
    assert sentence in str(caught.value)
