from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tidemill import nn
from tidemill.dtype import DType
from tidemill.graph import DeviceRef
from tidemill.protocol import Array

CPU = DeviceRef.CPU()
F32 = DType.float32
DTYPES = {np.float16: (4e-3, 4e-3), np.float32: (1e-5, 1e-5), np.float64: (1e-9, 1e-9)}


def normal(*shape: int, dtype: Any = np.float32) -> Array:
    return (3 + 2 * np.random.default_rng(1).standard_normal(shape)).astype(dtype)


def standard(x: Array, axes: Any, eps: float) -> Array:
    wide = x.astype(np.float64)
    return (wide - wide.mean(axes, keepdims=True)) / np.sqrt(wide.var(axes, keepdims=True) + eps)


def close(actual: Array, expected: Array, dtype: Any) -> None:
    assert actual.dtype == np.dtype(dtype)
    np.testing.assert_allclose(actual.astype(np.float64), expected, *DTYPES[dtype])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(3, 8), (2, 0, 8), (8,)])
@pytest.mark.parametrize("keep_dtype", [False, True])
def test_layer_norm(run: Any, dtype: Any, shape: tuple[int, ...], keep_dtype: bool) -> None:
    x = normal(*shape, dtype=dtype)
    result = run(nn.LayerNorm(8, [CPU], DType.from_numpy(dtype), eps=1e-3, keep_dtype=keep_dtype), x)
    close(result.output, standard(x, -1, 1e-3) * result.weights["weight"] + result.weights["bias"], dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_layer_norm_that_learned_nothing(run: Any, dtype: Any) -> None:
    x = normal(3, 8, dtype=dtype)
    for layer in (nn.LayerNorm(8, [CPU], F32, elementwise_affine=False), nn.ConstantLayerNorm((8,), CPU, F32)):
        result = run(layer, x)
        assert not result.weights
        close(result.output, standard(x, -1, 1e-5), dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("offset", [0.0, 1.0])
@pytest.mark.parametrize("before_cast", [False, True])
def test_rms_norm(run: Any, dtype: Any, offset: float, before_cast: bool) -> None:
    x = normal(2, 3, 8, dtype=dtype)
    layer = nn.RMSNorm(8, F32, eps=1e-3, weight_offset=offset, multiply_before_cast=before_cast)
    result = run(layer, x, dims=[("b", "s", 8)])
    wide = x.astype(np.float64)
    weight = result.weights["weight"].astype(np.float64) + offset
    close(result.output, wide / np.sqrt((wide**2).mean(-1, keepdims=True) + 1e-3) * weight, dtype)


def test_rms_norm_names_the_sizes_that_differ(run: Any) -> None:
    with pytest.raises(ValueError, match=r"weight dimension \(8\) must match the input's last dimension \(7\)"):
        run(nn.RMSNorm(8, F32), normal(3, 7))


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
@pytest.mark.parametrize("shape", [(2, 8), (2, 8, 5), (2, 8, 3, 4), (0, 8, 3)])
@pytest.mark.parametrize("affine", [False, True])
def test_group_norm(run: Any, dtype: Any, shape: tuple[int, ...], affine: bool) -> None:
    x = normal(*shape, dtype=dtype)
    result = run(nn.GroupNorm(2, 8, affine=affine), x, dims=[("b", *shape[1:])])
    groups = standard(x.reshape(shape[0], 2, 4 * int(np.prod(shape[2:]))), -1, 1e-5).reshape(shape)
    scale, shift = (result.weights[key] for key in ("weight", "bias")) if affine else (np.ones(8), np.zeros(8))
    aligned = (8, *[1] * (len(shape) - 2))
    close(result.output, groups * scale.reshape(aligned) + shift.reshape(aligned), dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(2, 3), (2, 3, 5), (2, 3, 4, 5), (0, 3, 4)])
@pytest.mark.parametrize("affine", [False, True])
def test_batch_norm(run: Any, dtype: Any, shape: tuple[int, ...], affine: bool) -> None:
    x = normal(*shape, dtype=dtype)
    result = run(nn.BatchNorm(3, eps=1e-3, affine=affine), x, dims=[("b", *shape[1:])])
    aligned = (3, *[1] * (len(shape) - 2))
    weights = {name: value.astype(np.float64).reshape(aligned) for name, value in result.weights.items()}
    expected = (x.astype(np.float64) - weights["running_mean"]) / np.sqrt(weights["running_var"] + 1e-3)
    close(result.output, expected * weights["weight"] + weights["bias"] if affine else expected, dtype)


def test_batch_norm_takes_torch_checkpoints() -> None:
    model = nn.Sequential([nn.BatchNorm(3), nn.BatchNorm(3, affine=False)])
    keys = ["0.weight", "0.bias", "0.running_mean", "0.running_var", "1.running_mean", "1.running_var"]
    assert list(model.state_dict()) == keys
    checkpoint = {key: np.ones(3, np.float32) for key in keys} | {"0.num_batches_tracked": np.array(7)}
    assert model.load_state_dict(checkpoint) == ((), ())
    with pytest.raises(ValueError, match="Unexpected keys in state_dict: num_batches_tracked"):
        model.load_state_dict(checkpoint | {"num_batches_tracked": np.array(7)})


REFUSALS: dict[str, tuple[Any, str]] = {
    "groups": (lambda: nn.GroupNorm(3, 8), r"num_channels\(8\) should be divisible by num_groups\(3\)"),
    "axes": (lambda: nn.ConstantLayerNorm((2, 8), CPU, F32), "only the last axis"),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_what_is_refused_says_why(case: str) -> None:
    make, text = REFUSALS[case]
    with pytest.raises(ValueError, match=text):
        make()


@pytest.mark.parametrize("layer", [nn.GroupNorm(2, 8), nn.BatchNorm(8)])
def test_channels_are_on_axis_1(run: Any, layer: nn.Module) -> None:
    with pytest.raises(ValueError, match="channels"):
        run(layer, normal(2, 4, 8))
