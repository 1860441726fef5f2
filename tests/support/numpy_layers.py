"""The layers of well-known architectures in plain numpy, float64: an oracle that shares no code with tidemill."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np

__all__ = [
    "Weights",
    "attention",
    "batch_norm",
    "conv1d",
    "conv2d",
    "gelu",
    "gelu_tanh",
    "layer_norm",
    "linear",
    "max_pool",
    "seeded",
    "silu",
    "softmax",
]

Floats: TypeAlias = Any
Weights: TypeAlias = Mapping[str, Floats]


def seeded(shapes: Mapping[str, tuple[int, ...]], seed: int = 0) -> dict[str, Floats]:
    """Weights of a size at which nothing overflows: float32, variances positive."""
    random, weights = np.random.default_rng(seed), {}
    for name, shape in shapes.items():
        values = random.standard_normal(shape) / math.sqrt(max(1, math.prod(shape[1:])))
        weights[name] = (np.abs(values) + 0.5 if name.endswith("running_var") else values).astype(np.float32)
    return weights


def linear(weights: Weights, name: str, x: Floats) -> Floats:
    bias = weights.get(f"{name}.bias", 0.0)
    return x @ np.asarray(weights[f"{name}.weight"], np.float64).T + bias


def conv2d(x: Floats, kernel: Floats, bias: Floats = 0.0, stride: int = 1, padding: int = 0) -> Floats:
    """[batch, in, height, width] and [out, in, kernel, kernel]."""
    padded = np.pad(x, ((0, 0), (0, 0), (padding, padding), (padding, padding)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, kernel.shape[2:], axis=(2, 3))[:, :, ::stride, ::stride]
    return np.einsum("bihwkl,oikl->bohw", windows, kernel.astype(np.float64)) + np.reshape(bias, (-1, 1, 1))


def conv1d(x: Floats, kernel: Floats, bias: Floats, stride: int = 1, padding: int = 0) -> Floats:
    """[batch, in, length] and [out, in, kernel]."""
    windows = np.lib.stride_tricks.sliding_window_view(
        np.pad(x, ((0, 0), (0, 0), (padding, padding))), kernel.shape[2], axis=2
    )
    return np.einsum("bilk,oik->bol", windows[:, :, ::stride], kernel.astype(np.float64)) + bias[:, None]


def max_pool(x: Floats, kernel: int, stride: int, padding: int) -> Floats:
    sides = ((0, 0), (0, 0), (padding, padding), (padding, padding))
    padded = np.pad(x, sides, constant_values=-np.inf)
    windows = np.lib.stride_tricks.sliding_window_view(padded, (kernel, kernel), axis=(2, 3))
    return windows[:, :, ::stride, ::stride].max(axis=(-1, -2))


def batch_norm(weights: Weights, name: str, x: Floats, eps: float = 1e-5) -> Floats:
    mean, variance, scale, shift = (
        np.asarray(weights[f"{name}.{part}"], np.float64).reshape(-1, 1, 1)
        for part in ("running_mean", "running_var", "weight", "bias")
    )
    return (x - mean) / np.sqrt(variance + eps) * scale + shift


def layer_norm(weights: Weights, name: str, x: Floats, eps: float = 1e-5) -> Floats:
    centred = x - x.mean(axis=-1, keepdims=True)
    normal = centred / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + eps)
    return normal * weights[f"{name}.weight"] + weights[f"{name}.bias"]


def softmax(x: Floats) -> Floats:
    powers = np.exp(x - x.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def attention(query: Floats, key: Floats, value: Floats, heads: int, causal: bool = False) -> Floats:
    """[batch, length, size] each -> [batch, length, size], one head after the other."""
    mixed = []
    for q, k, v in zip(*(np.split(one, heads, axis=-1) for one in (query, key, value)), strict=True):
        scores = q @ k.transpose(0, 2, 1) / math.sqrt(q.shape[-1])
        if causal:
            scores = np.where(np.tri(*scores.shape[1:], dtype=bool), scores, -np.inf)
        mixed.append(softmax(scores) @ v)
    return np.concatenate(mixed, axis=-1)


_erf: Callable[[Floats], Floats] = np.vectorize(math.erf)


def gelu(x: Floats) -> Floats:
    return x * 0.5 * (1 + _erf(x / math.sqrt(2)))


def gelu_tanh(x: Floats) -> Floats:
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def silu(x: Floats) -> Floats:
    return x / (1 + np.exp(-x))
