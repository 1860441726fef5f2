"""Operators that pick elements by position."""

from __future__ import annotations

import operator
from types import EllipsisType
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from tidemill.graph.context import as_tensor, current, emit
from tidemill.graph.dim import Dim, DimLike, StaticDim
from tidemill.graph.fault import op_fault
from tidemill.graph.ops.axes import check_axis, resolve_axis
from tidemill.graph.ops.promote import TensorLike

if TYPE_CHECKING:
    from tidemill.graph.value import TensorValue

__all__ = ["gather", "slice_tensor"]

Index: TypeAlias = int | slice | tuple[slice, DimLike] | EllipsisType | None

_TO_THE_END = np.iinfo(np.int64).max
_TO_THE_START = np.iinfo(np.int64).min


def gather(input: TensorLike, indices: TensorLike, axis: int = 0) -> TensorValue:
    """The slices of `input` along `axis` at `indices`; a negative index counts from the end.

    Args:
        input: Any tensor.
        indices: int32 or int64. An index out of range fails the run.
        axis: The axis that is looked up; the axes of `indices` take its place.
    """
    value, where = as_tensor(input), as_tensor(indices)
    index = resolve_axis("gather", value, axis)
    if where.dtype.name not in ("int32", "int64"):
        raise op_fault("gather", {"input": value, "indices": where}, "indices must be int32 or int64; cast them")
    shape = [*value.shape[:index], *where.shape, *value.shape[index + 1 :]]
    return emit("Gather", [value, where], value.type.with_shape(shape), axis=index)


def slice_tensor(x: TensorLike, indices: Any) -> TensorValue:
    """`x[indices]` with numpy's meaning of whole numbers, slices, `...` and None.

    A slice of a symbolic axis whose size cannot be told is written `(slice(1, None), "rest")`: the second is the name
    of its size.

    Raises:
        IndexError: Too many indices, or a whole number beyond a static axis.
        ValueError: The size of a slice is not known and was not named.
    """
    value = as_tensor(x)
    entries = _spread(indices, value)
    cuts: list[tuple[int, slice]] = []
    shape: list[Dim] = []
    dropped: list[int] = []
    added: list[int] = []
    axis = 0
    for entry in entries:
        if entry is None:
            added.append(len(shape) - len(dropped) + len(added))
            continue
        cut, dim = _cut(value, axis, entry)
        if cut is not None:
            cuts.append((axis, cut))
        if isinstance(entry, (slice, tuple)):
            shape.append(dim)
        else:
            shape.append(Dim(1))
            dropped.append(axis)
        axis += 1
    return _reshaped(_sliced(value, cuts, shape), dropped, added)


def _spread(indices: Any, value: TensorValue) -> list[Index]:
    entries = list(indices) if isinstance(indices, tuple) and not _is_named(indices) else [indices]
    used = sum(entry is not None and entry is not Ellipsis for entry in entries)
    missing = value.rank - used
    if missing < 0 or sum(entry is Ellipsis for entry in entries) > 1:
        raise IndexError(f"too many indices: {used} for shape {value.shape}, with at most one '...'")
    if not any(entry is Ellipsis for entry in entries):
        entries.append(Ellipsis)
    at = next(place for place, entry in enumerate(entries) if entry is Ellipsis)
    return [*entries[:at], *[slice(None)] * missing, *entries[at + 1 :]]


def _is_named(entry: Any) -> bool:
    return (
        isinstance(entry, tuple)
        and len(entry) == 2
        and isinstance(entry[0], slice)
        and not isinstance(entry[1], (slice, EllipsisType, type(None)))
        and isinstance(entry[1], (str, Dim))
    )


def _cut(value: TensorValue, axis: int, entry: Any) -> tuple[slice | None, Dim]:
    """What to slice out of an axis, None for all of it, and the size that is left."""
    dim = value.shape[axis]
    if _is_named(entry):
        return entry[0], Dim(entry[1])
    if isinstance(entry, slice):
        return _slice_cut(value, axis, entry)
    try:
        place = operator.index(entry)
    except TypeError:
        raise TypeError(f"index {entry!r} is neither a whole number, a slice, '...' nor None") from None
    if isinstance(dim, StaticDim):
        place = check_axis(f"index on axis {axis}", place, dim.dim)
    return slice(place, place + 1 if place != -1 else None), Dim(1)


def _slice_cut(value: TensorValue, axis: int, entry: slice) -> tuple[slice | None, Dim]:
    dim = value.shape[axis]
    if entry == slice(None):
        return None, dim
    if isinstance(dim, StaticDim):
        return entry, Dim(len(range(*entry.indices(dim.dim))))
    if entry.start is None and entry.stop is None and entry.step == -1:
        return entry, dim
    raise op_fault(
        "slice_tensor",
        {"x": value},
        f"the size of [{entry.start}:{entry.stop}:{entry.step}] on axis {axis} (size {dim}) is not known while "
        f"tracing; name it: (slice({entry.start}, {entry.stop}, {entry.step}), 'name')",
    )


def _sliced(value: TensorValue, cuts: list[tuple[int, slice]], shape: list[Dim]) -> TensorValue:
    if not cuts:
        return value
    bounds = [_bounds(cut) for _, cut in cuts]
    columns = [list(column) for column in zip(*bounds, strict=True)]
    starts, ends, steps = (current().constant(np.array(column, np.int64)) for column in columns)
    axes = current().constant(np.array([axis for axis, _ in cuts], np.int64))
    result = emit("Slice", [value, starts, ends, axes, steps], value.type.with_shape(shape))
    for axis, _ in cuts:
        current().define(result.shape[axis], result, axis)
    return result


def _bounds(cut: slice) -> tuple[int, int, int]:
    step = 1 if cut.step is None else cut.step
    start = cut.start if cut.start is not None else (0 if step > 0 else _TO_THE_END)
    stop = cut.stop if cut.stop is not None else (_TO_THE_END if step > 0 else _TO_THE_START)
    return start, stop, step


def _reshaped(value: TensorValue, dropped: list[int], added: list[int]) -> TensorValue:
    if dropped:
        shape = [dim for axis, dim in enumerate(value.shape) if axis not in dropped]
        axes = current().constant(np.array(dropped, np.int64))
        value = emit("Squeeze", [value, axes], value.type.with_shape(shape))
    if added:
        shape = list(value.shape)
        for place in added:
            shape.insert(place, Dim(1))
        axes = current().constant(np.array(added, np.int64))
        value = emit("Unsqueeze", [value, axes], value.type.with_shape(shape))
    return value
