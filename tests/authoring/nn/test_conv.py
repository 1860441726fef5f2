from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np
import pytest

from tidemill import nn
from tidemill.dtype import DType
from tidemill.protocol import Array

F32 = DType.float32


def normal(*shape: int) -> Array:
    return np.random.default_rng(2).standard_normal(shape).astype(np.float32)


def channels_last(x: Array) -> Array:
    return np.moveaxis(x, 1, -1)


def windows(x: Array, kernel: Sequence[int], stride: int, dilation: int) -> Array:
    """[batch, channels, new sizes..., kernel...] of an image [batch, channels, sizes...]."""
    reach = [dilation * (size - 1) + 1 for size in kernel]
    views = np.lib.stride_tricks.sliding_window_view(x, reach, axis=tuple(range(2, x.ndim)))
    steps = (
        (slice(None),) * 2 + (slice(None, None, stride),) * len(kernel) + (slice(None, None, dilation),) * len(kernel)
    )
    return views[steps]


def padded(x: Array, padding: Sequence[int], value: float = 0.0) -> Array:
    pairs = list(zip(padding[0::2], padding[1::2], strict=True))
    return np.pad(x, [(0, 0), (0, 0), *pairs], constant_values=value)


def convolve(x: Array, weight: Array, stride: int, dilation: int, groups: int) -> Array:
    """torch's layout: [batch, in, sizes...] with [out, in / groups, kernel...]."""
    results = []
    for image, kernel in zip(np.split(x, groups, axis=1), np.split(weight, groups), strict=True):
        axes = [1, *range(x.ndim, 2 * x.ndim - 2)]
        seen = windows(image, kernel.shape[2:], stride, dilation)
        results.append(np.moveaxis(np.tensordot(seen, kernel, (axes, range(1, kernel.ndim))), -1, 1))
    return np.concatenate(results, axis=1)


CONVS = {
    1: lambda **options: nn.Conv1D(3, 4, 6, F32, has_bias=True, **options),
    2: lambda **options: nn.Conv2d((3, 2), 4, 6, F32, has_bias=True, **options),
    3: lambda **options: nn.Conv3D(3, 2, 2, 4, 6, F32, has_bias=True, **options),
}
STEPS = [(1, 0, 1, 1), (2, 1, 1, 2), (1, 1, 2, 1)]


@pytest.mark.parametrize("rank", CONVS)
@pytest.mark.parametrize(("stride", "padding", "dilation", "groups"), STEPS)
@pytest.mark.parametrize("permute", [False, True])
def test_convolutions(
    run: Any, rank: int, stride: int, padding: int, dilation: int, groups: int, permute: bool
) -> None:
    layer = CONVS[rank](stride=stride, padding=padding, dilation=dilation, num_groups=groups, permute=permute)
    x = normal(2, 4, *[7, 6, 8][:rank])
    result = run(layer, x if permute else channels_last(x), dims=None)
    weight = result.weights["weight"]
    torch_weight = weight if permute else np.moveaxis(weight, (-1, -2), (0, 1))
    expected = convolve(padded(x, [padding] * 2 * rank), torch_weight, stride, dilation, groups)
    expected += result.weights["bias"].reshape(-1, *[1] * rank)
    np.testing.assert_allclose(result.output, expected if permute else channels_last(expected), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("padding", "all_sides"), [((1, 2), (1, 1, 2, 2)), ((0, 1, 2, 3), (0, 1, 2, 3))])
def test_padding_by_axis_and_by_side(run: Any, padding: Any, all_sides: tuple[int, ...]) -> None:
    x = normal(1, 4, 5, 6)
    result = run(nn.Conv2d(3, 4, 2, F32, padding=padding, permute=True), x, dims=[("b", 4, "h", "w")])
    expected = convolve(padded(x, all_sides), result.weights["weight"], 1, 1, 1)
    np.testing.assert_allclose(result.output, expected, rtol=1e-4, atol=1e-5)


def test_one_sided_padding_makes_a_convolution_causal(run: Any) -> None:
    layer = nn.Conv1D(3, 2, 2, F32, padding=(2, 0), permute=True)
    x = normal(1, 2, 6)
    later = x.copy()
    later[..., 3:] += 1
    first, second = (run(layer, one).output for one in (x, later))
    np.testing.assert_array_equal(first[..., :3], second[..., :3])


def spread(x: Array, weight: Array, stride: int, dilation: int) -> Array:
    """The uncut transposed convolution in torch's layout: [batch, in, length] with [in, out, kernel]."""
    length, kernel = x.shape[2], weight.shape[2]
    result = np.zeros((len(x), weight.shape[1], (length - 1) * stride + dilation * (kernel - 1) + 1), np.float32)
    for place, point in product(range(length), range(kernel)):
        result[:, :, place * stride + point * dilation] += x[:, :, place] @ weight[:, :, point]
    return result


TRANSPOSED: list[tuple[dict[str, Any], tuple[int, int, int, int]]] = [
    ({}, (1, 0, 1, 0)),
    ({"stride": 2, "padding": 1, "output_padding": 1}, (2, 1, 1, 1)),
    ({"stride": 2, "dilation": 2}, (2, 0, 2, 0)),
    ({"stride": (1, 2), "padding": (0, 0, 1, 1), "output_padding": (0, 1)}, (2, 1, 1, 1)),
]


@pytest.mark.parametrize(("options", "steps"), TRANSPOSED)
@pytest.mark.parametrize("permute", [False, True])
@pytest.mark.parametrize("normed", [False, True])
def test_transposed_convolutions(
    run: Any, options: dict[str, Any], steps: tuple[int, int, int, int], permute: bool, normed: bool
) -> None:
    stride, padding, dilation, extra = steps
    make = nn.WeightNormConvTranspose1d if normed else nn.ConvTranspose1d
    x = normal(2, 4, 5)
    result = run(make(3, 4, 6, F32, has_bias=True, permute=permute, **options), x if permute else channels_last(x))
    stored = result.weights["weight_v" if normed else "weight"]
    weight = stored if permute else stored.transpose(2, 1, 0)
    if normed:
        norms = np.sqrt((weight**2).sum((1, 2), keepdims=True))
        weight = weight / norms * result.weights["weight_g"]
    whole = np.pad(spread(x, weight, stride, dilation), [(0, 0), (0, 0), (0, extra)])
    expected = whole[..., padding : whole.shape[-1] - padding] + result.weights["bias"][:, None]
    np.testing.assert_allclose(result.output, expected if permute else channels_last(expected), rtol=1e-4, atol=1e-5)


def test_weight_norm_keys() -> None:
    layer = nn.WeightNormConvTranspose1d(3, 4, 6, F32, has_bias=True, permute=True)
    shapes = {name: list(weight.shape) for name, weight in layer.raw_state_dict().items()}
    assert shapes == {"weight_g": [4, 1, 1], "weight_v": [4, 6, 3], "bias": [6]}


POOLS = {1: (nn.MaxPool1d, nn.AvgPool1d), 2: (nn.MaxPool2d, nn.AvgPool2d), 3: (nn.MaxPool3d, nn.AvgPool3d)}


@pytest.mark.parametrize("rank", POOLS)
@pytest.mark.parametrize(("stride", "padding"), [(None, 0), (1, 1), (3, 0)])
@pytest.mark.parametrize("permute", [False, True])
def test_pools(run: Any, rank: int, stride: int | None, padding: int, permute: bool) -> None:
    x = normal(2, 3, *[7, 6, 8][:rank])
    axes = tuple(range(-rank, 0))
    largest, mean = POOLS[rank]
    for make, fold, filler in ((largest, np.max, -np.inf), (mean, np.mean, 0.0)):
        layer = make(2, stride, padding, permute=permute)
        result = run(layer, x if permute else channels_last(x)).output
        seen = windows(padded(x, [padding] * 2 * rank, filler), [2] * rank, stride or 2, 1)
        expected = fold(seen, axis=axes).astype(np.float32)
        np.testing.assert_allclose(result, expected if permute else channels_last(expected), rtol=1e-5, atol=1e-6)


def test_pools_leave_padding_out_if_asked(run: Any) -> None:
    ones = np.ones((1, 1, 4), np.float32)
    counted, left_out = (
        run(nn.AvgPool1d(3, 1, 1, count_include_pad=count, permute=True), ones).output for count in (True, False)
    )
    np.testing.assert_allclose(counted, [[[2 / 3, 1, 1, 2 / 3]]], rtol=1e-6)
    np.testing.assert_array_equal(left_out, ones)


@pytest.mark.parametrize(
    ("options", "text"),
    [({"num_groups": 3}, "3 groups must divide the 4 channels"), ({"padding": (1, 2, 3)}, "one number, 2 or 4")],
)
def test_what_is_refused_says_why(options: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        nn.Conv2d(3, 4, 6, F32, **options)
