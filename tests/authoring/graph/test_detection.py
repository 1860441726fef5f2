from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemill.dtype import DType
from tidemill.graph import Graph, TensorType, ops
from tidemill.protocol import Array

Check = Callable[..., Any]

RNG = np.random.default_rng(5)


def overlap(a: Array, b: Array) -> float:
    (ay, by), (ax, bx) = ((np.sort(a[axis::2]), np.sort(b[axis::2])) for axis in (0, 1))
    height, width = min(ay[1], by[1]) - max(ay[0], by[0]), min(ax[1], bx[1]) - max(ax[0], bx[0])
    shared = max(height, 0) * max(width, 0)
    return float(shared / ((ay[1] - ay[0]) * (ax[1] - ax[0]) + (by[1] - by[0]) * (bx[1] - bx[0]) - shared))


def suppress(boxes: Array, scores: Array, most: int, iou: float, least: float) -> Array:
    chosen = []
    for batch, kinds in enumerate(scores):
        for kind, values in enumerate(kinds):
            kept: list[int] = []
            for box in np.argsort(-values, kind="stable"):
                free = all(overlap(boxes[batch, box], boxes[batch, other]) <= iou for other in kept)
                if values[box] > least and free and len(kept) < most:
                    kept.append(box)
            chosen += [(batch, kind, box) for box in kept]
    return np.array(chosen, np.int64).reshape(-1, 3)


@given(st.integers(1, 2), st.integers(1, 3), st.integers(0, 6), st.integers(0, 4), st.sampled_from([0.0, 0.3, 0.7]))
@settings(max_examples=25, deadline=None, derandomize=True)
def test_nms_equals_its_definition(check_op: Check, batch: int, kinds: int, count: int, most: int, iou: float) -> None:
    boxes = RNG.random((batch, count, 4)).astype(np.float32)
    scores = RNG.random((batch, kinds, count)).astype(np.float32)
    check_op(
        lambda boxes, scores: ops.non_maximum_suppression(boxes, scores, most, iou, 0.25),
        *(boxes, scores),
        expect=lambda boxes, scores: suppress(boxes, scores, most, iou, 0.25),
        dims=[("n", "boxes", 4), ("n", kinds, "boxes")],
        reference=False,  # onnx.reference fails where there are no boxes
    )


def test_nms_takes_its_limits_as_tensors_and_names_the_result(check_op: Check) -> None:
    boxes, scores = RNG.random((1, 5, 4)).astype(np.float32), RNG.random((1, 1, 5)).astype(np.float32)

    def op(boxes: Any, scores: Any, most: Any, iou: Any, least: Any) -> Any:
        chosen = ops.non_maximum_suppression(boxes, scores, most, iou, least, out_dim="kept")
        return ops.gather(boxes[0], chosen[:, 2]).reshape(["kept", 2, 2])

    limits = (np.array(3, np.int64), np.array(0.5, np.float32), np.array(0.1, np.float32))
    expect = boxes[0, suppress(boxes, scores, 3, 0.5, 0.1)[:, 2]].reshape(-1, 2, 2)
    check_op(op, boxes, scores, *limits, expect=expect)


def sample(image: Array, y: float, x: float) -> Array:
    height, width = image.shape[:2]
    if not (-1 <= y <= height and -1 <= x <= width):
        return np.zeros(image.shape[-1])
    y, x = min(max(y, 0), height - 1), min(max(x, 0), width - 1)
    top, left = int(y), int(x)
    down, right = min(top + 1, height - 1), min(left + 1, width - 1)
    low, far = y - top, x - left
    above = image[top, left] * (1 - far) + image[top, right] * far
    return above * (1 - low) + (image[down, left] * (1 - far) + image[down, right] * far) * low


def align(x: Array, rois: Array, size: Any, scale: float, ratio: int, aligned: bool, fold: Any) -> Array:
    out = np.zeros((len(rois), *size, x.shape[-1]), np.float32)
    for region, (batch, *corners) in enumerate(rois):
        left, top, right, bottom = (corner * scale - aligned * 0.5 for corner in corners)
        spans = [bottom - top, right - left]
        tall, wide = spans if aligned else [max(span, 1.0) for span in spans]
        counts = [ratio or math.ceil(span / bins) for span, bins in zip((tall, wide), size, strict=True)]
        for i, j in np.ndindex(*size):
            samples = [
                sample(
                    x[int(batch)],
                    top + (i + (a + 0.5) / counts[0]) * tall / size[0],
                    left + (j + (b + 0.5) / counts[1]) * wide / size[1],
                )
                for a, b in np.ndindex(*counts)
            ]
            out[region, i, j] = fold(samples, 0)
    return out


@pytest.mark.parametrize("aligned", [False, True])
@pytest.mark.parametrize(("ratio", "mode"), [(0, "AVG"), (1, "AVG"), (2, "AVG"), (1, "MAX"), (3, "MAX")])
def test_roi_align_equals_its_definition(check_op: Check, aligned: bool, ratio: int, mode: str) -> None:
    x = RNG.standard_normal((2, 6, 7, 3)).astype(np.float32)
    rois = np.array([[0, 0.5, 1, 5, 4.5], [1, 1, 0, 3, 3], [1, -1, -2, 9, 8], [0, 2, 2, 2.5, 2.25]], np.float32)
    check_op(
        lambda x, rois: ops.roi_align(x, rois, 2, 3, 0.75, ratio, aligned, mode),
        *(x, rois),
        expect=lambda x, rois: align(x, rois, (2, 3), 0.75, ratio, aligned, np.mean if mode == "AVG" else np.max),
        dims=[("n", "h", "w", 3), ("regions", 5)],
        tolerance=(1e-4, 1e-5),
        reference=False,  # onnx.reference rounds indices of the batch otherwise
    )


def test_roi_align_of_no_regions(check_op: Check) -> None:
    x, rois = np.ones((1, 4, 4, 2), np.float32), np.zeros((0, 5), np.float32)
    check_op(lambda x, rois: ops.roi_align(x, rois, 2, 2), x, rois, expect=np.zeros((0, 2, 2, 2), np.float32))


X, ROIS = TensorType(DType.float32, ["n", 4, 4, 2]), TensorType(DType.float32, ["regions", 5])


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda x, r: ops.roi_align(x, r, 2, 2, mode="MIN"), "must be 'AVG' or 'MAX', got 'MIN'"),
        (lambda x, r: ops.roi_align(x, r, 2, 2, mode="MAX"), "at least 1 for mode='MAX'"),
        (lambda x, r: ops.roi_align(x, r, 2, 2, sampling_ratio=1.5), "must be a whole number"),
        (lambda x, r: ops.roi_align(x, r[:, 1:], 2, 2), r"rois \[regions, 5\]"),
        (lambda x, r: ops.non_maximum_suppression(x[:, 0], r, 1, 0.5, 0.5), r"boxes must be \[batch, boxes, 4\]"),
        (
            lambda x, r: ops.non_maximum_suppression(r.reshape([1, -1, 5])[..., :4], x[:, 0], r, 0.5, 0.5),
            r"scores \[batch, classes, boxes\]",
        ),
    ],
)
def test_what_does_not_fit_is_refused(build: Callable[..., Any], message: str) -> None:
    with Graph("wrong", input_types=[X, ROIS]) as graph:
        x, rois = (value.tensor for value in graph.inputs)
        with pytest.raises(ValueError, match=message):
            build(x, rois)
