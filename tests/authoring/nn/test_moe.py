from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from tidemill import nn
from tidemill.dtype import DType
from tidemill.graph import DeviceRef, TensorType, TensorValue, ops
from tidemill.graph.export import to_model
from tidemill.protocol import Array

CPU = DeviceRef.CPU()
F32 = DType.float32
HIDDEN, EXPERTS, INNER = 8, 4, 16


def normal(*shape: int) -> Array:
    return np.random.default_rng(10).standard_normal(shape).astype(np.float32)


def mlp(x: Array, weights: Mapping[str, Array], name: str) -> Array:
    gate, up, down = (weights[f"{name}.{part}_proj.weight"].astype(np.float32) for part in ("gate", "up", "down"))
    hidden = x @ gate.T
    result: Array = (hidden / (1 + np.exp(-hidden)) * (x @ up.T)) @ down.T
    return result


def mixture(x: Array, weights: Mapping[str, Array], choices: int, weight_first: bool) -> Array:
    """Token by token."""
    rows = []
    for token in x.reshape(-1, HIDDEN):
        scores = weights["gate.gate_score.weight"].astype(np.float32) @ token
        total = np.zeros(HIDDEN, np.float32)
        for expert in np.argsort(-scores, kind="stable")[:choices]:
            seen = token * scores[expert] if weight_first else token
            output = mlp(seen, weights, f"experts.{expert}")
            total += output if weight_first else output * scores[expert]
        rows.append(
            total + (mlp(token, weights, "shared_experts") if "shared_experts.up_proj.weight" in weights else 0)
        )
    return np.array(rows, np.float32).reshape(x.shape)


def experts(choices: int = 2, **options: Any) -> nn.MoE:
    return nn.MoE([CPU], HIDDEN, EXPERTS, choices, INNER, dtype=F32, **options)


@pytest.mark.parametrize("choices", [1, 2, 4])
@pytest.mark.parametrize("weight_first", [False, True])
@pytest.mark.parametrize("shared", [False, True])
def test_every_token_goes_through_its_experts(run: Any, choices: int, weight_first: bool, shared: bool) -> None:
    options: dict[str, Any] = {"has_shared_experts": True, "shared_experts_dim": 12} if shared else {}
    x = normal(2, 5, HIDDEN)
    layer = experts(choices, apply_router_weight_first=weight_first, **options)
    result = run(layer, x, dims=[("b", "s", HIDDEN)])
    expected = mixture(x, result.weights, choices, weight_first)
    np.testing.assert_allclose(result.output, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("tokens", [0, 1])
def test_experts_that_nobody_chooses(run: Any, tokens: int) -> None:
    x = normal(tokens, HIDDEN)
    result = run(experts(gate_dtype=F32), x, dims=[("n", HIDDEN)])
    np.testing.assert_allclose(result.output, mixture(x, result.weights, 2, False), rtol=1e-4, atol=1e-4)


class SoftmaxGate(nn.MoEGate):
    def __call__(self, x: TensorValue) -> tuple[TensorValue, TensorValue]:
        indices, scores = super().__call__(x)
        return indices, ops.softmax(scores)


def test_a_gate_of_ones_own(run: Any) -> None:
    x = normal(3, HIDDEN)
    result = run(experts(1, gate_cls=SoftmaxGate), x)
    scores = x @ result.weights["gate.gate_score.weight"].astype(np.float32).T
    chosen = [mlp(token, result.weights, f"experts.{best}") for token, best in zip(x, scores.argmax(-1), strict=True)]
    np.testing.assert_allclose(result.output, np.array(chosen), rtol=1e-4, atol=1e-4)


def test_layers_do_not_mix_up_their_counts(run: Any) -> None:
    x = normal(7, HIDDEN)
    layers = nn.Sequential([experts(), experts()])
    result = run(layers, x, dims=[("n", HIDDEN)])
    first, second = (
        {name.removeprefix(f"{place}."): one for name, one in result.weights.items() if name.startswith(f"{place}.")}
        for place in (0, 1)
    )
    expected = mixture(mixture(x, first, 2, False), second, 2, False)
    np.testing.assert_allclose(result.output, expected, rtol=1e-3, atol=1e-3)


def test_experts_share_one_function() -> None:
    model = to_model(experts().trace(TensorType(F32, ["n", HIDDEN])), weights="inputs")
    assert [node.op_type for node in model.graph.node].count("MLP") == EXPERTS


REFUSALS: dict[str, tuple[Any, type[Exception], str]] = {
    "processes": (lambda: experts(ep_size=2), NotImplementedError, "leave it at 1"),
    "choices": (lambda: experts(5), ValueError, "5 of 4 experts"),
    "shared": (lambda: experts(has_shared_experts=True), ValueError, "dim is 0"),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_what_is_refused_says_why(case: str) -> None:
    make, error, text = REFUSALS[case]
    with pytest.raises(error, match=text):
        make()
