"""What object detectors are made of: choosing boxes, and cutting features out of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tidemill.dtype import DType
from tidemill.graph.context import as_tensor, current, emit
from tidemill.graph.dim import Dim
from tidemill.graph.fault import op_fault
from tidemill.graph.layout import ConvInputLayout
from tidemill.graph.ops.channels import channels_first, channels_restored
from tidemill.graph.ops.indexing import slice_tensor
from tidemill.graph.ops.kernels import compute
from tidemill.graph.ops.pooling import max_pool2d
from tidemill.graph.ops.promote import TensorLike, cast_to, is_weak
from tidemill.graph.ops.shaping import reshape
from tidemill.graph.ops.sizing import sized
from tidemill.graph.type import TensorType

if TYPE_CHECKING:
    from tidemill.graph.value import TensorValue

__all__ = ["non_maximum_suppression", "roi_align"]


def non_maximum_suppression(
    boxes: TensorLike,
    scores: TensorLike,
    max_output_boxes_per_class: TensorLike,
    iou_threshold: TensorLike,
    score_threshold: TensorLike,
    out_dim: str = "num_selected",
) -> TensorValue:
    """The best boxes of each class, without those that overlap a better one too much.

    Class by class, the box with the highest score above `score_threshold` is taken, every other box is dropped whose
    overlap with it (intersection over union) is above `iou_threshold`, and so on.

    Args:
        boxes: [batch, boxes, 4], two opposite corners (y1, x1, y2, x2); float32, or a float that it holds.
        scores: [batch, classes, boxes], of the dtype of `boxes`.
        max_output_boxes_per_class: How many boxes of a class are taken at most: an int64 scalar, or a number.
        iou_threshold: A float32 scalar in [0, 1], or a number.
        score_threshold: A float32 scalar, or a number.
        out_dim: The name of the number of boxes that are taken.

    Returns:
        int64 [out_dim, 3]: the batch, class and box index of each.
    """
    corners, values = as_tensor(boxes), as_tensor(scores)
    if corners.rank != 3 or values.rank != 3 or corners.shape[2] != 4 or values.shape[2] != corners.shape[1]:
        raise op_fault(
            "non_maximum_suppression",
            {"boxes": corners, "scores": values},
            "boxes must be [batch, boxes, 4] and scores [batch, classes, boxes]",
        )
    if corners.dtype is not values.dtype or corners.dtype.name not in ("float32", "float16", "bfloat16"):
        raise op_fault(
            "non_maximum_suppression",
            {"boxes": corners, "scores": values},
            "both must be float32, or both be cast to it",
        )
    inputs = [
        cast_to(corners, DType.float32),
        cast_to(values, DType.float32),
        _scalar(max_output_boxes_per_class, DType.int64),
        _scalar(iou_threshold, DType.float32),
        _scalar(score_threshold, DType.float32),
    ]
    result = emit("NonMaxSuppression", inputs, TensorType(DType.int64, [Dim(out_dim), 3], corners.device))
    return sized(result, 0)


def roi_align(
    input: TensorLike,
    rois: TensorLike,
    output_height: int,
    output_width: int,
    spatial_scale: float = 1.0,
    sampling_ratio: float = 0.0,
    aligned: bool = False,
    mode: str = "AVG",
) -> TensorValue:
    """Features of one size cut out of regions of any size (He et al., 2017).

    A region is divided into bins; each bin is the mean, or the largest, of samples that are interpolated linearly.

    Args:
        input: [batch, height, width, channels]; float32 or float64, or a float that they hold.
        rois: [regions, 5], of the dtype of `input`: the index in the batch, then x1, y1, x2, y2.
        output_height: Bins along the height.
        output_width: Bins along the width.
        spatial_scale: What the coordinates of regions are multiplied by.
        sampling_ratio: Samples per bin along each axis, a whole number; 0 for as many as a bin is elements long.
        aligned: Whether elements are areas of which the coordinates name the corners; without it regions are a half
            element off, and at least one element long, as in the first implementations.
        mode: "AVG" or "MAX". "MAX" needs a sampling_ratio: ONNX Runtime does not interpolate for it, so the samples
            are taken as bins of their own, and pooled.

    Returns:
        [regions, output_height, output_width, channels].
    """
    image, regions = as_tensor(input), as_tensor(rois)
    _check_regions(image, regions, sampling_ratio, mode)
    samples = int(sampling_ratio)
    fine = samples if mode == "MAX" else 1
    height, width = output_height * fine, output_width * fine
    channels = channels_first(image, ConvInputLayout.NHWC)
    type = channels.type.with_shape([regions.shape[0], channels.shape[1], height, width])
    indices = cast_to(reshape(slice_tensor(regions, (slice(None), 0)), (-1,)), DType.int64)
    inputs = [channels, slice_tensor(regions, (slice(None), slice(1, 5))), indices]
    result = compute(
        "RoiAlign",
        inputs,
        type,
        channels,
        mode="avg",
        output_height=height,
        output_width=width,
        sampling_ratio=1 if mode == "MAX" else samples,
        spatial_scale=float(spatial_scale),
        coordinate_transformation_mode="half_pixel" if aligned else "output_half_pixel",
    )
    if fine > 1:
        result = max_pool2d(result, fine, fine, input_layout=ConvInputLayout.NCHW)
    return channels_restored(result, ConvInputLayout.NHWC)


def _check_regions(image: TensorValue, regions: TensorValue, ratio: float, mode: str) -> None:
    if mode not in ("AVG", "MAX"):
        raise ValueError(f"roi_align mode must be 'AVG' or 'MAX', got {mode!r}")
    if ratio != int(ratio) or ratio < 0 or (mode == "MAX" and not ratio):
        raise ValueError(
            f"roi_align: sampling_ratio is {ratio}; it must be a whole number, and at least 1 for mode='MAX', where "
            "the number of samples can not depend on the region"
        )
    if image.rank != 4 or regions.rank != 2 or regions.shape[1] != 5 or regions.dtype is not image.dtype:
        raise op_fault(
            "roi_align",
            {"input": image, "rois": regions},
            "input must be [batch, height, width, channels] and rois [regions, 5] of the same dtype",
        )


def _scalar(value: TensorLike, dtype: DType) -> TensorValue:
    if is_weak(value):
        return current().constant(np.asarray(value).astype(dtype.to_numpy()).reshape(1))
    tensor = as_tensor(value)
    if tensor.dtype is not dtype or tensor.type.num_elements != 1:
        raise op_fault("non_maximum_suppression", {"value": tensor}, f"limits are scalars; this one of {dtype!r}")
    return reshape(tensor, (1,))
