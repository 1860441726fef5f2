"""Resizing: other numbers of samples of the same image."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from tidemill.graph.context import as_tensor, current
from tidemill.graph.fault import op_fault
from tidemill.graph.ir import Attribute
from tidemill.graph.ops.kernels import compute
from tidemill.graph.ops.promote import TensorLike
from tidemill.graph.ops.shaping import reshape
from tidemill.graph.shape import Shape, ShapeLike

if TYPE_CHECKING:
    from tidemill.graph.value import TensorValue

__all__ = ["InterpolationMode", "resize", "resize_bicubic", "resize_linear", "resize_nearest"]


class InterpolationMode(Enum):
    """How values between samples are found."""

    NEAREST = "nearest"
    BILINEAR = "bilinear"
    BICUBIC = "bicubic"

    def __str__(self) -> str:
        return self.value


# The seed's numbers for them, in order.
_COORDINATES = ("half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel")
_ROUNDINGS = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")


def resize(
    input: TensorLike, shape: ShapeLike, interpolation: InterpolationMode = InterpolationMode.BILINEAR
) -> TensorValue:
    """An image [batch, channels, height, width] in another size, with pixels as areas (half-pixel centres).

    Args:
        input: [batch, channels, height, width].
        shape: The shape of the result, four dims.
        interpolation: Which of `resize_nearest`, `resize_linear` and `resize_bicubic`.

    Raises:
        ValueError: `input` or `shape` does not have four axes.
    """
    value, target = as_tensor(input), Shape(shape)
    if value.rank != 4 or len(target) != 4:
        raise op_fault(
            "resize", {"input": value}, f"takes [batch, channels, height, width], and such a shape, not {target}"
        )
    if interpolation is InterpolationMode.NEAREST:
        return resize_nearest(value, target)
    return (
        resize_linear(value, target) if interpolation is InterpolationMode.BILINEAR else resize_bicubic(value, target)
    )


def resize_linear(
    input: TensorLike, size: ShapeLike, coordinate_transform_mode: int = 0, antialias: bool = False
) -> TensorValue:
    """Every axis whose size changes is interpolated linearly.

    Args:
        input: Floating point numbers of any rank.
        size: The shape of the result, one dim per axis.
        coordinate_transform_mode: Where a new sample lies among the old ones: 0 with samples as the centres of areas
            (half pixel), 1 with the first and the last sample kept (align corners), 2 at `new / scale` (asymmetric),
            3 as 0, but at the first sample where the new size is 1.
        antialias: Whether shrinking averages over all samples that a new one stands for.

    Raises:
        ValueError: The mode is none of these, the ranks differ, or `input` holds no floats.
    """
    value, target = _checked("resize_linear", input, size, coordinate_transform_mode)
    _check_floats("resize_linear", value)
    attributes: dict[str, Attribute] = {
        "mode": "linear",
        "coordinate_transformation_mode": _COORDINATES[coordinate_transform_mode],
        "antialias": int(antialias),
        "exclude_outside": int(antialias),
    }
    changed = [axis for axis, (old, new) in enumerate(zip(value.shape, target, strict=True)) if old != new]
    if value.rank == 4 and changed and min(changed) >= 2:
        return _resized(value, target, attributes)
    for axis in changed:
        value = _along(value, axis, target, attributes)
    return value


def resize_nearest(
    input: TensorLike, size: ShapeLike, coordinate_transform_mode: int = 0, round_mode: int = 0
) -> TensorValue:
    """Every new sample is the nearest old one.

    Args:
        input: Any tensor of float16, float32, int8, int32 or uint8, or of a dtype that one of them holds.
        size: The shape of the result, one dim per axis.
        coordinate_transform_mode: As for `resize_linear`.
        round_mode: 0 for the lower of two samples that are equally near, 1 for the upper, 2 for always the one before,
            3 for always the one after.

    Raises:
        ValueError: A mode is none of these, the ranks differ, or there is no kernel for the dtype.
    """
    value, target = _checked("resize_nearest", input, size, coordinate_transform_mode)
    if round_mode not in range(len(_ROUNDINGS)):
        raise ValueError(f"round_mode must be 0-3, got {round_mode}")
    attributes: dict[str, Attribute] = {
        "mode": "nearest",
        "coordinate_transformation_mode": _COORDINATES[coordinate_transform_mode],
        "nearest_mode": _ROUNDINGS[round_mode],
    }
    return value if target == value.shape else _resized(value, target, attributes)


def resize_bicubic(input: TensorLike, size: ShapeLike) -> TensorValue:
    """Height and width interpolated by cubic convolution (Keys, a = -0.75), with samples as the centres of areas.

    Args:
        input: [batch, channels, height, width], floating point.
        size: The shape of the result; batch and channels stay.

    Raises:
        ValueError: `input` or `size` does not have four axes, or another axis changes.
    """
    value, target = _checked("resize_bicubic", input, size, 0)
    _check_floats("resize_bicubic", value)
    if value.rank != 4 or value.shape[:2] != target[:2]:
        raise op_fault(
            "resize_bicubic",
            {"input": value},
            f"takes [batch, channels, height, width] of which only the last two change, not {value.shape} to {target}",
        )
    attributes: dict[str, Attribute] = {
        "mode": "cubic",
        "cubic_coeff_a": -0.75,
        "coordinate_transformation_mode": _COORDINATES[0],
    }
    return value if target == value.shape else _resized(value, target, attributes)


def _checked(op: str, input: TensorLike, size: ShapeLike, mode: int) -> tuple[TensorValue, Shape]:
    value, target = as_tensor(input), Shape(size)
    if mode not in range(len(_COORDINATES)):
        raise ValueError(f"coordinate_transform_mode must be 0-3, got {mode}")
    if len(target) != value.rank:
        raise op_fault(op, {"input": value}, f"size must have the same rank as input ({value.rank}), got {len(target)}")
    return value, target


def _check_floats(op: str, value: TensorValue) -> None:
    if not value.dtype.is_float():
        raise op_fault(
            op,
            {"input": value},
            f"interpolates floating point numbers, not {value.dtype!r}; cast, and round the result",
        )


def _along(value: TensorValue, axis: int, target: Shape, attributes: dict[str, Attribute]) -> TensorValue:
    """One axis interpolated: linear interpolation over several axes is one after the other."""
    before, after = Shape(value.shape[:axis]).num_elements, Shape(value.shape[axis + 1 :]).num_elements
    image = reshape(value, (1, before, value.shape[axis], after))
    result = _resized(image, Shape((1, before, target[axis], after)), attributes)
    return reshape(result, (*value.shape[:axis], target[axis], *value.shape[axis + 1 :]))


def _resized(value: TensorValue, target: Shape, attributes: dict[str, Attribute]) -> TensorValue:
    sizes = current().extents(target)
    return compute("Resize", [value, None, None, sizes], value.type.with_shape(target), value, **attributes)
