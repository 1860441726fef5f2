"""Whether values fit the weights they are meant for; finds every fault before anything is changed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import SequenceMatcher, get_close_matches
from typing import Any, NamedTuple

import numpy as np

from tidemill.driver import Buffer
from tidemill.dtype import DType
from tidemill.graph.dim import StaticDim
from tidemill.graph.shape import Shape
from tidemill.graph.weight import Weight
from tidemill.weights import WeightData

__all__ = ["LoadReport", "check_value", "stored_form", "strict_fault"]


_HINTS = 8


class LoadReport(NamedTuple):
    """What `load_state_dict(strict=False)` left aside.

    Attributes:
        missing: Weights that got no value.
        unexpected: Keys that no weight has.
    """

    missing: tuple[str, ...]
    unexpected: tuple[str, ...]


def strict_fault(missing: Iterable[str], unexpected: Iterable[str], values: Mapping[str, Any]) -> str:
    """Why a strict load fails, empty if it does not."""
    lacking, left = sorted(missing), sorted(unexpected)
    parts = []
    if lacking:
        parts.append(f"Missing required weights: {', '.join(lacking)}")
        empty = [name for name in lacking if name in values]
        if empty:
            parts.append(f"The value is None for: {', '.join(empty)}")
        elif hint := _nearest(lacking, values):
            parts.append("For '{}', did you mean '{}'?".format(*hint))
    if left:
        parts.append(f"Unexpected keys in state_dict: {', '.join(left)}")
    return "; ".join(parts)


def _nearest(missing: Iterable[str], given: Iterable[str]) -> tuple[str, str] | None:
    """The missing name and the given one that are most alike, if any are."""
    keys = list(given)
    # Comparing every pair takes minutes for a large checkpoint; a few are enough for a hint.
    some = list(missing)[:_HINTS]
    pairs = [(name, close[0]) for name in some if (close := get_close_matches(name, keys, n=1))]
    return max(pairs, key=lambda pair: SequenceMatcher(None, *pair).ratio(), default=None)


def check_value(name: str, weight: Weight, value: Any, alignment: int | None) -> str:
    """What is wrong with the value for a weight, empty if nothing.

    Args:
        name: The weight's full name.
        weight: The weight.
        value: A numpy array, Buffer, WeightData or another DLPack exporter.
        alignment: The alignment to demand in bytes; None to take any, since a run copies what is not aligned.
    """
    if not hasattr(value, "__dlpack__"):
        return (
            f"The class type of '{name}' value ({type(value)}) is not an array type that we understand. "
            "Please use a numpy array or tidemill.driver.Buffer."
        )
    if isinstance(value, WeightData):
        return _weight_data_fault(name, weight, value)
    faults = [fault for fault in (_shape_fault(weight, _shape_of(value)), _dtype_fault(weight, value)) if fault]
    if faults:
        return f"Value provided to weight '{name}' had different {' and '.join(faults)}."
    if alignment is not None and isinstance(value, np.ndarray) and value.ctypes.data % alignment:
        return (
            f"Found unaligned weight '{name}' (expected alignment={alignment}). Copy it, or pass a smaller "
            "`weight_alignment` to `Module.load_state_dict()`."
        )
    return ""


def _weight_data_fault(name: str, weight: Weight, value: WeightData) -> str:
    """As `check_value`: packed bytes may have any shape, and a scalar may come as one element."""
    packed = weight.quantization_encoding is not None or weight.dtype is value.dtype is DType.uint8
    shapes = {tuple(weight.shape), tuple(Shape(value.shape))}
    alike = packed or shapes == {(), (StaticDim(1),)} or not _shape_fault(weight, value.shape)
    faults = [] if alike else [f"shape (expected={list(weight.shape)}, actual={list(Shape(value.shape))})"]
    faults += [fault for fault in (_dtype_fault(weight, value),) if fault]
    return f"Value provided to weight '{name}' had different {' and '.join(faults)}" if faults else ""


def _shape_of(value: Any) -> tuple[int, ...]:
    return tuple(int(size) for size in value.shape)


def _dtype_of(value: Any) -> DType:
    if isinstance(value, (Buffer, WeightData)):
        return value.dtype
    return DType.from_numpy(value.dtype) if isinstance(value, np.ndarray) else Buffer.from_dlpack(value).dtype


def _dtype_fault(weight: Weight, value: Any) -> str:
    try:
        given = _dtype_of(value)
    except TypeError:
        return f"dtype (expected={weight.dtype!r}, actual={value.dtype})"
    return "" if given is weight.dtype else f"dtype (expected={weight.dtype!r}, actual={given!r})"


def _shape_fault(weight: Weight, given: tuple[int, ...]) -> str:
    shape = weight.shape
    if shape.is_static:
        expected = tuple(shape.static_dims)
        return "" if given == expected else f"shape (expected={expected}, actual={given})"
    if len(given) != len(shape):
        return f"shape rank (expected={len(shape)}, actual={len(given)})"
    wrong = [
        f"dim[{axis}]: expected {dim}, got {size}"
        for axis, (dim, size) in enumerate(zip(shape, given, strict=True))
        if isinstance(dim, StaticDim) and dim.dim != size
    ]
    return f"shape ({', '.join(wrong)})" if wrong else ""


def stored_form(value: Any) -> Any:
    """The value as a module keeps it: itself, or a copy in C order and native byte order where it lies otherwise."""
    data = value.data if isinstance(value, WeightData) else value
    if not isinstance(data, np.ndarray) or (data.flags.c_contiguous and data.dtype.isnative):
        return data
    return np.ascontiguousarray(data, data.dtype.newbyteorder("="))
