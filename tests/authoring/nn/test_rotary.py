from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from tidemill import nn
from tidemill.protocol import Array

SIZE, THETA, LENGTH = 16, 10000.0, 32
PLAIN = 1 / THETA ** (np.arange(0, SIZE, 2) / SIZE)


def llama3(frequency: float, params: nn.Llama3RopeScalingParams) -> float:
    """As the case distinction of the Llama 3.1 release."""
    wave = 2 * math.pi / frequency
    if wave < params.orig_max_position / params.high_freq_factor:
        return frequency
    if wave > params.orig_max_position / params.low_freq_factor:
        return frequency / params.factor
    smooth = (params.orig_max_position / wave - params.low_freq_factor) / (
        params.high_freq_factor - params.low_freq_factor
    )
    return (1 - smooth) * frequency / params.factor + smooth * frequency


def yarn(params: nn.YarnScalingParams) -> Array:
    """As in the paper's own code: a ramp over the pairs between those that turn beta_fast and beta_slow times."""

    def pair(turns: float) -> float:
        length = params.original_max_position_embeddings
        return SIZE * math.log(length / (turns * 2 * math.pi)) / (2 * math.log(THETA))

    low, high = max(math.floor(pair(params.beta_fast)), 0), min(math.ceil(pair(params.beta_slow)), SIZE - 1)
    kept = 1 - np.clip((np.arange(SIZE // 2) - low) / (high - low), 0, 1)
    return PLAIN / params.factor * (1 - kept) + PLAIN * kept


LLAMA3 = nn.Llama3RopeScalingParams(8.0, 1.0, 4.0, 64)
YARN = nn.YarnScalingParams(4.0, 4.0, 1.0, 256)
LONG = nn.LongRoPEScalingParams([1.0 + i / 10 for i in range(8)], [2.0 + i for i in range(8)], 10, 40)


def ntk(length: int, factor: float) -> Array:
    base = THETA * (factor * length / LENGTH - (factor - 1)) ** (SIZE / (SIZE - 2))
    return 1 / base ** (np.arange(0, SIZE, 2) / SIZE)


POSITIONS = np.array([[0, 1, 2, 9, 10, 31], [5, 6, 7, 40, 41, 77]])
FAR = POSITIONS[..., None] >= 10

ANGLES: dict[str, tuple[nn.RotaryEmbedding, Array]] = {
    "RotaryEmbedding": (nn.RotaryEmbedding(64, 4, THETA, LENGTH), PLAIN),
    "LinearRotaryEmbedding": (
        nn.LinearRotaryEmbedding(64, 4, THETA, LENGTH, scaling_params=nn.LinearScalingParams(4.0)),
        PLAIN / 4,
    ),
    "DynamicRotaryEmbedding": (nn.DynamicRotaryEmbedding(64, 4, THETA, LENGTH), PLAIN),
    "DynamicRotaryEmbedding with a factor": (nn.DynamicRotaryEmbedding(64, 4, THETA, LENGTH, factor=2.0), ntk(78, 2.0)),
    "Llama3RotaryEmbedding": (
        nn.Llama3RotaryEmbedding(64, 4, THETA, LENGTH, scaling_params=LLAMA3),
        np.array([llama3(one, LLAMA3) for one in PLAIN]),
    ),
    "YarnRotaryEmbedding": (nn.YarnRotaryEmbedding(64, 4, THETA, LENGTH, scaling_params=YARN), yarn(YARN)),
    "LongRoPERotaryEmbedding": (
        nn.LongRoPERotaryEmbedding(64, 4, THETA, LENGTH, scaling_params=LONG),
        np.where(FAR, PLAIN / LONG.long_factor, PLAIN / LONG.short_factor),
    ),
    "unscaled Llama3RotaryEmbedding": (nn.Llama3RotaryEmbedding(64, 4, THETA, LENGTH), PLAIN),
    "unscaled YarnRotaryEmbedding": (nn.YarnRotaryEmbedding(64, 4, THETA, LENGTH), PLAIN),
    "unscaled LongRoPERotaryEmbedding": (nn.LongRoPERotaryEmbedding(64, 4, THETA, LENGTH), PLAIN),
    "unscaled LinearRotaryEmbedding": (nn.LinearRotaryEmbedding(64, 4, THETA, LENGTH), PLAIN),
}


@pytest.mark.parametrize("name", ANGLES)
def test_angles(run: Any, name: str) -> None:
    layer, frequencies = ANGLES[name]
    assert not layer.state_dict()
    result = run(layer, POSITIONS, dims=[("b", "s")], call=lambda rope, positions: list(rope.cos_sin(positions)))
    angles = POSITIONS[..., None] * frequencies
    magnitude = 0.1 * math.log(4.0) + 1 if name == "YarnRotaryEmbedding" else 1.0
    for actual, expected in zip(result.outputs, (np.cos(angles), np.sin(angles)), strict=True):
        np.testing.assert_allclose(actual, expected * magnitude, rtol=1e-4, atol=2e-5)


def test_dynamic_scaling_leaves_short_sequences_alone(run: Any) -> None:
    layer, positions = nn.DynamicRotaryEmbedding(64, 4, THETA, LENGTH, factor=2.0), np.arange(LENGTH)[None]
    cosine, _ = run(layer, positions, call=lambda rope, given: list(rope.cos_sin(given))).outputs
    np.testing.assert_allclose(cosine, np.cos(positions[..., None] * PLAIN), rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("start", [0, 3])
def test_calling_it_turns_heads(run: Any, interleaved: bool, start: int) -> None:
    x = np.random.default_rng(6).standard_normal((2, 5, 3, SIZE)).astype(np.float32)
    layer = nn.RotaryEmbedding(48, 3, THETA, LENGTH, interleaved=interleaved)
    result = run(layer, x, dims=[("b", "s", 3, SIZE)], call=lambda rope, value: rope(value, start))
    turns = np.exp(1j * (start + np.arange(5))[:, None, None] * PLAIN)
    first, second = (x[..., 0::2], x[..., 1::2]) if interleaved else np.split(x, 2, -1)
    product = (first + 1j * second) * turns
    parts = [product.real, product.imag]
    expected = np.stack(parts, -1).reshape(x.shape) if interleaved else np.concatenate(parts, -1)
    np.testing.assert_allclose(result.output, expected, rtol=1e-4, atol=1e-5)


def test_positions_may_be_given(run: Any) -> None:
    x = np.random.default_rng(7).standard_normal((1, 3, 2, SIZE)).astype(np.float32)
    layer = nn.RotaryEmbedding(32, 2, THETA, LENGTH)
    counted = run(layer, x, call=lambda rope, value: rope(value, 2)).output
    given = run(layer, x, np.array([[2, 3, 4]]), call=lambda rope, value, places: rope(value, places)).output
    np.testing.assert_array_equal(counted, given)


def test_the_table(run: Any) -> None:
    layer = nn.RotaryEmbedding(64, 4, THETA, LENGTH)
    x = np.ones((), np.float32)
    table = run(layer, x, call=lambda rope, one: rope.freqs_cis * one).output
    angles = np.arange(2 * LENGTH)[:, None] * PLAIN
    expected = np.stack([np.cos(angles), np.sin(angles)], -1).reshape(2 * LENGTH, SIZE)
    np.testing.assert_allclose(table, expected, rtol=1e-4, atol=2e-5)


def test_scales() -> None:
    assert nn.RotaryEmbedding(64, 4, THETA, LENGTH).compute_scale() == 0.25
    assert nn.RotaryEmbedding(64, 4, THETA, LENGTH).compute_scale(3.0) == 3.0
    long = nn.LongRoPERotaryEmbedding(64, 4, THETA, LENGTH, scaling_params=LONG)
    assert long.compute_scale() == pytest.approx(0.25 * math.sqrt(1 + math.log(4) / math.log(10)))
    assert long.compute_scale(3.0) == 3.0


def test_what_does_not_fit_is_named(run: Any) -> None:
    short = nn.LongRoPEScalingParams([1.0], [1.0], 10, 40)
    with pytest.raises(ValueError, match="8 frequencies need as many factors, not 1 short and 1 long"):
        nn.LongRoPERotaryEmbedding(64, 4, THETA, LENGTH, scaling_params=short)
    x = np.zeros((1, 5, 4, SIZE), np.float32)
    with pytest.raises(ValueError, match="seq_len is 4, but x has length 5"):
        run(nn.RotaryEmbedding(64, 4, THETA, LENGTH), x, call=lambda rope, value: rope(value, 0, 4))
