from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tidemill import nn
from tidemill.dtype import DType
from tidemill.graph import DeviceRef
from tidemill.graph.quantization import QuantizationEncoding
from tidemill.protocol import Array

CPU = DeviceRef.CPU()
F32 = DType.float32


def normal(*shape: int, dtype: Any = np.float32) -> Array:
    return np.random.default_rng(0).standard_normal(shape).astype(dtype)


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


@pytest.mark.parametrize("shape", [(3, 8), (2, 3, 8), (8,), (0, 8)])
@pytest.mark.parametrize("has_bias", [False, True])
def test_linear(run: Any, shape: tuple[int, ...], has_bias: bool) -> None:
    x = normal(*shape)
    result = run(nn.Linear(8, 6, F32, CPU, has_bias), x)
    expected = x @ result.weights["weight"].T + (result.weights["bias"] if has_bias else 0)
    np.testing.assert_allclose(result.output, expected, rtol=1e-5, atol=1e-6)


def test_linear_of_another_dtype_promotes(run: Any) -> None:
    x = normal(3, 8)
    result = run(nn.Linear(8, 6, DType.bfloat16, has_bias=True), x)
    weight, bias = (result.weights[name].astype(np.float32) for name in ("weight", "bias"))
    np.testing.assert_allclose(result.output, x @ weight.T + bias, rtol=1e-5, atol=1e-5)


def test_linear_clips_its_weight(run: Any) -> None:
    x = normal(3, 8)
    result = run(nn.Linear(8, 6, F32, clip_weight=0.25), x)
    np.testing.assert_allclose(
        result.output, x @ np.clip(result.weights["weight"], -0.25, 0.25).T, rtol=1e-5, atol=1e-6
    )


def q4_0(matrix: Array) -> tuple[Array, Array]:
    """Rows as Q4_0 blocks, and the numbers that these stand for."""
    blocks = matrix.reshape(len(matrix), -1, 32)
    scales = (np.abs(blocks).max(-1, keepdims=True) / 7).astype(np.float16)
    codes = np.clip(np.rint(blocks / scales) + 8, 0, 15).astype(np.uint8)
    packed = codes[..., :16] | codes[..., 16:] << 4
    data = np.concatenate([scales.view(np.uint8), packed], axis=-1).reshape(len(matrix), -1)
    return data, ((codes.astype(np.float32) - 8) * scales.astype(np.float32)).reshape(matrix.shape)


def test_linear_computes_with_packed_rows(run: Any) -> None:
    x, (data, matrix) = normal(3, 64), q4_0(normal(6, 64))
    layer = nn.Linear(64, 6, DType.uint8, quantization_encoding=QuantizationEncoding.Q4_0)
    result = run(layer, x, weights={"weight": data})
    np.testing.assert_allclose(result.output, x @ matrix.T, rtol=1e-4, atol=1e-4)


def test_embedding_looks_up_packed_rows(run: Any) -> None:
    data, matrix = q4_0(normal(10, 32))
    layer = nn.Embedding(10, 32, DType.uint8, quantization_encoding=QuantizationEncoding.Q4_0)
    ids = np.array([[1, 9], [0, 1]])
    np.testing.assert_allclose(run(layer, ids, weights={"weight": data}).output, matrix[ids], rtol=1e-6)


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_embedding(run: Any, dtype: Any) -> None:
    ids = np.array([[1, 4, 0], [-1, 2, 2]], dtype)
    result = run(nn.Embedding(5, 8, F32, CPU), ids, dims=[("b", "s")])
    np.testing.assert_array_equal(result.output, result.weights["weight"][ids])


@pytest.mark.parametrize("stacked", [False, True])
@pytest.mark.parametrize("has_bias", [False, True])
def test_stacked_linear(run: Any, stacked: bool, has_bias: bool) -> None:
    x = normal(2, 3, 4)
    layer = nn.StackedLinear(4, [4, 2, 2], ["q_proj", "k_proj", "v_proj"], F32, CPU, stacked, has_bias)
    result = run(layer, x)
    prefixes = [""] if stacked else ["q_proj.", "k_proj.", "v_proj."]
    weight = np.concatenate([result.weights[f"{prefix}weight"] for prefix in prefixes])
    bias = np.concatenate([result.weights[f"{prefix}bias"] for prefix in prefixes]) if has_bias else 0
    np.testing.assert_allclose(result.output, x @ weight.T + bias, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("stacked", [False, True])
def test_stacked_linear_shows_its_parts_as_one(run: Any, stacked: bool) -> None:
    layer = nn.StackedLinear(4, [2, 3], ["a", "b"], F32, stacked=stacked, has_bias=True)
    shapes = run(layer, normal(1), call=lambda one, x: [one.stacked_weight * x, one.stacked_bias * x])
    assert [output.shape for output in shapes.outputs] == [(5, 4), (5,)]


def test_stacked_linear_of_clipped_weights(run: Any) -> None:
    x = normal(3, 4)
    result = run(nn.StackedLinear(4, [2, 3], ["a", "b"], F32, clip_weight=0.25), x)
    weight = np.clip(np.concatenate([result.weights["a.weight"], result.weights["b.weight"]]), -0.25, 0.25)
    np.testing.assert_allclose(result.output, x @ weight.T, rtol=1e-5, atol=1e-6)


ACTIVATIONS = {
    "silu": lambda x: x * sigmoid(x),
    "gelu_quick": lambda x: x * sigmoid(1.702 * x),
    "gelu_tanh": lambda x: x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
    "relu": lambda x: np.maximum(x, 0),
    "tanh": np.tanh,
    "sigmoid": sigmoid,
}


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_mlp(run: Any, name: str) -> None:
    x = normal(2, 3, 8)
    result = run(nn.MLP(F32, None, 8, 16, [CPU], has_bias=True, activation_function=name), x)
    gate, up, down = (
        lambda v, key=key: v @ result.weights[f"{key}_proj.weight"].T + result.weights[f"{key}_proj.bias"]
        for key in ("gate", "up", "down")
    )
    np.testing.assert_allclose(result.output, down(ACTIVATIONS[name](gate(x)) * up(x)), rtol=1e-4, atol=1e-5)


def test_fused_mlp_equals_the_unfused(run: Any) -> None:
    x = normal(2, 3, 8)
    fused = run(nn.FusedMLP(F32, 8, 16, [CPU]), x)
    gate, up = np.split(fused.weights["gate_up_proj_fused"], 2)
    weights = {"gate_proj.weight": gate, "up_proj.weight": up, "down_proj.weight": fused.weights["down_proj.weight"]}
    plain = run(nn.MLP(F32, None, 8, 16, [CPU]), x, weights=weights)
    np.testing.assert_allclose(fused.output, plain.output, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("low", "high"), [(-0.5, 0.5), (None, 0.1), (0.2, None)])
def test_clamp(run: Any, low: float | None, high: float | None) -> None:
    x = normal(3, 4)
    result = run(nn.Identity(), x, call=lambda _, value: nn.clamp(value, low, high))
    np.testing.assert_array_equal(result.output, np.clip(x, low, high).astype(np.float32))


REFUSALS: dict[str, tuple[Any, type[Exception], str]] = {
    "no bounds": (lambda: nn.clamp(1), ValueError, "min, max or both"),
    "crossed bounds": (lambda: nn.clamp(1, 2, 1), ValueError, "min 2 is above max 1"),
    "scaled weights": (lambda: nn.Linear(8, 6, F32, quant_config=object()), NotImplementedError, "dequantised"),
    "gptq": (
        lambda: nn.Linear(8, 6, F32, quantization_encoding=QuantizationEncoding.GPTQ),
        NotImplementedError,
        "ops.qmatmul",
    ),
    "blocks": (
        lambda: nn.Linear(33, 6, F32, quantization_encoding=QuantizationEncoding.Q4_0),
        ValueError,
        "33 numbers is not a whole number of blocks of 32",
    ),
    "clipped blocks": (
        lambda: nn.Linear(32, 6, F32, quantization_encoding=QuantizationEncoding.Q4_0, clip_weight=1.0),
        ValueError,
        "can not be clipped",
    ),
    "activation": (
        lambda: nn.MLP(F32, None, 8, 16, [CPU], activation_function="gelu_tan"),
        ValueError,
        "did you mean 'gelu_tanh'",
    ),
    "devices": (lambda: nn.FusedMLP(F32, 8, 16, [CPU, CPU]), ValueError, "exactly one device"),
    "clipped stack": (
        lambda: nn.StackedLinear(4, [2], ["a"], F32, stacked=True, clip_weight=1.0),
        ValueError,
        "clip_weight is not yet supported with stacked=True",
    ),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_what_is_refused_says_why(case: str) -> None:
    make, error, text = REFUSALS[case]
    with pytest.raises(error, match=text):
        make()
