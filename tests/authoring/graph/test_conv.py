from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemill.dtype import DType
from tidemill.graph import ConvInputLayout, FilterLayout, Graph, TensorType, ops
from tidemill.protocol import Array

Check = Callable[..., Any]

RNG = np.random.default_rng(7)
CONVS = {1: ops.conv1d, 2: ops.conv2d, 3: ops.conv3d}
TRANSPOSES = {1: ops.conv1d_transpose, 2: ops.conv2d_transpose, 3: ops.conv3d_transpose}
LETTERS = "dhw"
LOOSE = (1e-4, 1e-5)


def random(*shape: int, dtype: Any = np.float32) -> Array:
    return RNG.standard_normal(shape).astype(dtype)


def pads(padding: tuple[int, ...]) -> list[tuple[int, int]]:
    return [(0, 0), *zip(padding[0::2], padding[1::2], strict=True), (0, 0)]


def taps(weights: Array) -> Any:
    return product(*(range(size) for size in weights.shape[:-2]))


def conv(x: Array, weights: Array, stride: Any, dilation: Any, padding: Any, groups: int = 1) -> Array:
    """Channels last, weights [..., in / groups, out]: every tap of the weights adds a shifted copy of the image."""
    x = np.pad(x, pads(padding))
    steps = zip(x.shape[1:-1], weights.shape[:-2], stride, dilation, strict=True)
    sizes = [(size - gap * (taps - 1) - 1) // step + 1 for size, taps, step, gap in steps]
    width, features = weights.shape[-2], weights.shape[-1] // groups
    out = np.zeros((x.shape[0], *sizes, weights.shape[-1]), x.dtype)
    for place, group in product(taps(weights), range(groups)):
        starts = zip(place, dilation, sizes, stride, strict=True)
        window = tuple(slice(at * gap, at * gap + (size - 1) * step + 1, step) for at, gap, size, step in starts)
        part = x[(slice(None), *window, slice(group * width, (group + 1) * width))]
        mine = slice(group * features, (group + 1) * features)
        out[..., mine] += part @ weights[place][:, mine]
    return out


def conv_transpose(x: Array, weights: Array, stride: Any, dilation: Any, padding: Any, more: Any) -> Array:
    """Channels last, weights [..., out, in]: every element of the image adds a scaled copy of the weights."""
    steps = list(zip(x.shape[1:-1], weights.shape[:-2], stride, dilation, strict=True))
    full = [(size - 1) * step + gap * (taps - 1) + 1 for size, taps, step, gap in steps]
    out = np.zeros(
        (x.shape[0], *(size + extra for size, extra in zip(full, more, strict=True)), weights.shape[-2]), x.dtype
    )
    for place in taps(weights):
        starts = zip(place, dilation, x.shape[1:-1], stride, strict=True)
        window = tuple(slice(at * gap, at * gap + (size - 1) * step + 1, step) for at, gap, size, step in starts)
        out[(slice(None), *window)] += x @ weights[place].T
    cut = zip(padding[0::2], padding[1::2], out.shape[1:-1], strict=True)
    return out[(slice(None), *(slice(before, size - after) for before, after, size in cut))]


def channels_first(x: Array) -> Array:
    return np.moveaxis(x, -1, 1)


@st.composite
def convolutions(draw: Any) -> tuple[Any, ...]:
    rank = draw(st.integers(1, 3))
    sizes = st.integers(1, 3)
    kernel, stride, dilation = (draw(st.tuples(*[sizes] * rank)) for _ in range(3))
    padding = draw(st.tuples(*[st.integers(0, 2)] * (2 * rank)))
    reach = [gap * (taps - 1) + 1 for taps, gap in zip(kernel, dilation, strict=True)]
    image = [draw(st.integers(max(1, span), span + 3)) for span in reach]
    return draw(st.integers(0, 2)), image, kernel, stride, dilation, padding, draw(st.integers(1, 2))


@given(convolutions(), st.booleans())
@settings(max_examples=25, deadline=None, derandomize=True)
def test_conv_equals_its_definition(check_op: Check, case: tuple[Any, ...], symbolic: bool) -> None:
    batch, image, kernel, stride, dilation, padding, groups = case
    rank = len(image)
    x, weights, bias = random(batch, *image, 2 * groups), random(*kernel, 2, 3 * groups), random(3 * groups)
    dims = [("n", *LETTERS[:rank], 2 * groups), weights.shape, bias.shape] if symbolic else None
    check_op(
        lambda x, weights, bias: CONVS[rank](x, weights, stride, dilation, padding, groups, bias),
        *(x, weights, bias),
        expect=lambda x, weights, bias: conv(x, weights, stride, dilation, padding, groups) + bias,
        dims=dims,
        tolerance=LOOSE,
        reference=groups == 1 and batch > 0,  # onnx.reference has neither groups of several features nor empty batches
    )


@given(convolutions(), st.booleans())
@settings(max_examples=25, deadline=None, derandomize=True)
def test_conv_transpose_equals_its_definition(check_op: Check, case: tuple[Any, ...], symbolic: bool) -> None:
    batch, image, kernel, stride, dilation, padding, _ = case
    rank = len(image)
    more = tuple(step - 1 for step in stride)
    padding = tuple(
        min(size, gap * (taps - 1) // 2)
        for size, taps, gap in zip(padding, np.repeat(kernel, 2), np.repeat(dilation, 2), strict=True)
    )
    x, weights = random(batch, *image, 3), random(*kernel, 2, 3)
    check_op(
        lambda x, weights: TRANSPOSES[rank](x, weights, stride, dilation, padding, more),
        *(x, weights),
        expect=lambda x, weights: conv_transpose(x, weights, stride, dilation, padding, more),
        dims=[("n", *LETTERS[:rank], 3), weights.shape] if symbolic else None,
        tolerance=LOOSE,
        reference=False,  # onnx.reference has no output_padding with dilation in every rank
    )


def test_the_layouts_are_those_of_torch_if_asked(check_op: Check) -> None:
    x, weights, bias = random(2, 5, 6, 4), random(3, 2, 4, 5), random(5)
    torch_filter = np.ascontiguousarray(np.transpose(weights, (3, 2, 0, 1)))
    layouts = {"input_layout": ConvInputLayout.NCHW, "filter_layout": FilterLayout.FCRS}
    check_op(
        lambda x, weights, bias: ops.conv2d(x, weights, padding=(1, 2, 0, 1), bias=bias, **layouts),
        *(channels_first(x), torch_filter, bias),
        expect=channels_first(conv(x, weights, (1, 1), (1, 1), (1, 2, 0, 1)) + bias),
        tolerance=LOOSE,
    )
    back = np.transpose(random(3, 2, 5, 4), (3, 2, 0, 1))  # [in, out, height, width]
    layouts = {"input_layout": ConvInputLayout.NCHW, "filter_layout": FilterLayout.CFRS}
    check_op(
        lambda x, weights, bias: ops.conv2d_transpose(x, weights, (2, 1), bias=bias, **layouts),
        *(channels_first(x), back, bias),
        expect=channels_first(
            conv_transpose(x, np.transpose(back, (2, 3, 1, 0)), (2, 1), (1, 1), (0, 0, 0, 0), (0, 0)) + bias
        ),
        tolerance=LOOSE,
    )


def test_torch_layouts_need_no_transpose(trace_op: Callable[..., Graph]) -> None:
    graph = trace_op(
        lambda x, w: ops.conv2d(x, w, input_layout=ConvInputLayout.NCHW, filter_layout=FilterLayout.FCRS),
        *(random(1, 2, 4, 4), random(3, 2, 2, 2)),
    )
    assert [node.op for node in graph.body.nodes] == ["Conv"]


@pytest.mark.parametrize("dtype", [DType.float16, DType.bfloat16])
def test_narrow_floats_work_where_the_cpu_has_no_kernel(check_op: Check, dtype: DType) -> None:
    x, weights = random(1, 5, 5, 2), random(2, 2, 2, 3)
    narrow = dtype.to_numpy()
    check_op(
        ops.conv2d,
        *(x.astype(narrow), weights.astype(narrow)),
        expect=conv(
            x.astype(narrow).astype(np.float32), weights.astype(narrow).astype(np.float32), (1, 1), (1, 1), (0,) * 4
        ).astype(narrow),
        reference=False,  # numpy's own rounding of sums in these dtypes is another one
    )


def test_operands_meet_in_the_wider_dtype(trace_op: Callable[..., Graph]) -> None:
    graph = trace_op(
        lambda x, w: ops.conv2d(x, w, bias=np.ones(3)), random(1, 4, 4, 2, dtype=np.float16), random(2, 2, 2, 3)
    )
    assert graph.output_types == [TensorType(DType.float32, [1, 3, 3, 3])]


X, W = TensorType(DType.float32, ["n", 8, "w", 4]), TensorType(DType.float32, [3, 3, 4, 6])


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda x, w: ops.conv2d(x, w[..., :2, :]), "the image has 4 channels, a filter of 2 in 1 groups takes 2"),
        (lambda x, w: ops.conv2d(x, w[..., :1, :], groups=4), "must divide into the groups"),
        (lambda x, w: ops.conv2d(x, w, padding=(1, 1)), "padding .* must be 4 sizes"),
        (lambda x, w: ops.conv2d(x, w, padding=(1, 1, 1, -1)), "padding"),
        (lambda x, w: ops.conv2d(x, w, stride=0), "stride 0 must be 2 whole numbers of at least 1"),
        (lambda x, w: ops.conv2d(x, w, dilation=4), "spans 9 elements does not fit spatial axis 0, which has 8"),
        (lambda x, w: ops.conv1d(x, w), "both of rank 3"),
        (lambda x, w: ops.conv2d(x, w, bias=w[0]), "bias must be"),
        (lambda x, w: ops.conv2d(x, w, bias=w[0, 0, 0, :3]), "the filter's 6 features"),
        (lambda x, w: ops.conv2d(x.cast(DType.int32), w.cast(DType.int32)), "of floats"),
        (lambda x, w: ops.conv2d(x, w, filter_layout=FilterLayout.CFRS), "transposed convolutions"),
        (lambda x, w: ops.conv2d_transpose(x, w), "takes 6 channels and gives 4, the image has 4"),
        (lambda x, w: ops.conv2d_transpose(x, w, filter_layout=FilterLayout.FCRS), "RSCF, QRSCF or CFRS"),
        (lambda x, w: ops.conv2d_transpose(x, w[..., :4], output_paddings=1), "output padding must be smaller"),
    ],
)
def test_what_does_not_fit_is_refused(build: Callable[..., Any], message: str) -> None:
    with Graph("wrong", input_types=[X, W]) as graph:
        x, w = (value.tensor for value in graph.inputs)
        with pytest.raises(ValueError, match=message):
            build(x, w)


def test_the_seed_s_shape_of_a_convolution() -> None:
    image, weights = TensorType(DType.float32, ["b", 8, 8, 3]), TensorType(DType.float32, [3, 3, 3, 5])
    graph = Graph("conv", ops.conv2d, [image, weights])
    assert graph.output_types == [TensorType(DType.float32, ["b", 6, 6, 5])]
