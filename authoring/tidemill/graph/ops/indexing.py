"""Operators that pick elements by position."""

from __future__ import annotations

import operator
from types import EllipsisType
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from tidemill.dtype import DType
from tidemill.graph.context import as_tensor, current, emit
from tidemill.graph.dim import Dim, DimLike, StaticDim
from tidemill.graph.fault import op_fault
from tidemill.graph.ops.axes import check_axis, resolve_axis
from tidemill.graph.ops.elementwise import add, equal, where
from tidemill.graph.ops.promote import TensorLike, cast_to
from tidemill.graph.ops.shaping import concat, reshape
from tidemill.graph.ops.sizing import sized

if TYPE_CHECKING:
    from tidemill.graph.value import TensorValue

__all__ = ["check_indices", "gather", "gather_nd", "slice_tensor"]

Bound: TypeAlias = "int | TensorValue"
Index: TypeAlias = "int | slice | tuple[slice, DimLike] | TensorValue | EllipsisType | None"

_TO_THE_END = int(np.iinfo(np.int64).max)
_TO_THE_START = int(np.iinfo(np.int64).min)


def gather(input: TensorLike, indices: TensorLike, axis: int = 0) -> TensorValue:
    """The slices of `input` along `axis` at `indices`; a negative index counts from the end.

    Args:
        input: Any tensor.
        indices: int32 or int64. An index out of range fails the run.
        axis: The axis that is looked up; the axes of `indices` take its place.
    """
    value, places = as_tensor(input), as_tensor(indices)
    index = resolve_axis("gather", value, axis)
    check_indices("gather", places)
    shape = [*value.shape[:index], *places.shape, *value.shape[index + 1 :]]
    return emit("Gather", [value, places], value.type.with_shape(shape), axis=index)


def gather_nd(input: TensorLike, indices: TensorLike, batch_dims: int = 0) -> TensorValue:
    """The slices of `input` at index vectors; a negative index counts from the end.

    Args:
        input: Any tensor.
        indices: int32 or int64 [*batch, ..., k]: positions on the k axes after the batch axes. One out of range
            fails the run.
        batch_dims: How many leading axes the two share.

    Returns:
        [*batch, ..., *input.shape[batch_dims + k:]].
    """
    value, places = as_tensor(input), as_tensor(indices)
    check_indices("gather_nd", places)
    depth = places.shape[-1] if places.rank else None
    if not isinstance(depth, StaticDim) or not 0 <= batch_dims < places.rank or batch_dims + depth.dim > value.rank:
        raise op_fault(
            "gather_nd",
            {"input": value, "indices": places},
            f"the last dim of indices must be known and, with batch_dims {batch_dims}, within the rank of input",
        )
    if value.shape[:batch_dims] != places.shape[:batch_dims]:
        raise op_fault("gather_nd", {"input": value, "indices": places}, f"the first {batch_dims} dims must be equal")
    shape = [*places.shape[:-1], *value.shape[batch_dims + depth.dim :]]
    return emit("GatherND", [value, cast_to(places, DType.int64)], value.type.with_shape(shape), batch_dims=batch_dims)


def check_indices(op: str, indices: TensorValue) -> None:
    """ValueError unless `indices` are int32 or int64."""
    if indices.dtype not in (DType.int32, DType.int64):
        raise op_fault(op, {"indices": indices}, f"indices must be int32 or int64, not {indices.dtype!r}; cast them")


def slice_tensor(x: TensorLike, indices: Any) -> TensorValue:
    """`x[indices]` with numpy's meaning of whole numbers, slices, `...` and None, and of scalar integer tensors.

    A slice of a symbolic axis whose size cannot be told is written `(slice(1, None), "rest")`: the second is the size
    or its name. The bounds of such a slice may be scalar integer tensors or dims too.

    Raises:
        IndexError: Too many indices, or a whole number beyond a static axis.
        ValueError: The size of a slice is not known and was not named.
    """
    value = as_tensor(x)
    cuts: dict[int, tuple[Bound, Bound, int]] = {}
    shape: list[Dim] = []
    dropped: list[int] = []
    added: list[int] = []
    for entry in _spread(indices, value):
        axis = len(shape)
        if entry is None:
            added.append(axis - len(dropped) + len(added))
            continue
        cut, dim = _cut(value, axis, entry)
        if cut is not None:
            cuts[axis] = cut
        shape.append(dim)
        if not isinstance(entry, (slice, tuple)):
            dropped.append(axis)
    return _reshaped(_sliced(value, cuts, shape), dropped, added)


def _spread(indices: Any, value: TensorValue) -> list[Index]:
    entries = list(indices) if isinstance(indices, (tuple, list)) and not _is_named(indices) else [indices]
    used = sum(entry is not None and entry is not Ellipsis for entry in entries)
    missing = value.rank - used
    if missing < 0 or sum(entry is Ellipsis for entry in entries) > 1:
        raise IndexError(f"too many indices: {used} for shape {value.shape}, with at most one '...'")
    if not any(entry is Ellipsis for entry in entries):
        entries.append(Ellipsis)
    at = next(place for place, entry in enumerate(entries) if entry is Ellipsis)
    return [*entries[:at], *[slice(None)] * missing, *entries[at + 1 :]]


def _is_named(entry: Any) -> bool:
    """Whether all indices together are one slice with a name; with a number they are two indices."""
    return (
        isinstance(entry, tuple)
        and len(entry) == 2
        and isinstance(entry[0], slice)
        and isinstance(entry[1], (str, Dim))
    )


def _cut(value: TensorValue, axis: int, entry: Any) -> tuple[tuple[Bound, Bound, int] | None, Dim]:
    """Where an axis starts, stops and steps, None for all of it, and the size that is left."""
    if isinstance(entry, tuple):
        named, dim = entry
        return _open_cut(named), Dim(dim)
    if isinstance(entry, slice):
        return _slice_cut(value, axis, entry)
    if hasattr(entry, "__tensorvalue__"):
        place = _scalar(as_tensor(entry))
        return (place, where(equal(place, -1), _TO_THE_END, add(place, 1)), 1), Dim(1)
    try:
        number = operator.index(entry)
    except TypeError:
        raise TypeError(f"index {entry!r} is neither a whole number, a slice, '...' nor None") from None
    dim = value.shape[axis]
    if isinstance(dim, StaticDim):
        number = check_axis(f"index on axis {axis}", number, dim.dim)
    return (number, number + 1 if number != -1 else _TO_THE_END, 1), Dim(1)


def _slice_cut(value: TensorValue, axis: int, entry: slice) -> tuple[tuple[Bound, Bound, int] | None, Dim]:
    dim = value.shape[axis]
    numbers = [entry.start, entry.stop, entry.step]
    if entry == slice(None):
        return None, dim
    if isinstance(dim, StaticDim) and all(number is None or hasattr(number, "__index__") for number in numbers):
        taken = range(*entry.indices(dim.dim))
        if not taken:
            return (0, 0, 1), Dim(0)
        # Counted from the front, so that a stop before the first element is not read as the last one.
        return (taken.start, taken.stop if taken.stop >= 0 else _TO_THE_START, taken.step), Dim(len(taken))
    if entry.start is None and entry.stop is None and entry.step == -1:
        return _open_cut(entry), dim
    if entry.stop == 0 and entry.step is None:
        return (0, 0, 1), Dim(0)
    raise op_fault(
        "slice_tensor",
        {"x": value},
        f"the size of [{entry.start}:{entry.stop}:{entry.step}] on axis {axis} (size {dim}) is not known while "
        f"tracing; name it: (slice({entry.start}, {entry.stop}, {entry.step}), 'name')",
    )


def _open_cut(cut: slice) -> tuple[Bound, Bound, int]:
    step = 1 if cut.step is None else operator.index(cut.step)
    if not step:
        raise ValueError("slice step cannot be zero")
    start = cut.start if cut.start is not None else (0 if step > 0 else _TO_THE_END)
    stop = cut.stop if cut.stop is not None else (_TO_THE_END if step > 0 else _TO_THE_START)
    return _bound(start), _bound(stop), step


def _bound(bound: Any) -> Bound:
    if hasattr(bound, "__tensorvalue__"):
        return _scalar(as_tensor(bound))
    if isinstance(bound, Dim) and not isinstance(bound, StaticDim):
        return current().extents([bound])
    return operator.index(bound)


def _scalar(value: TensorValue) -> TensorValue:
    """A bound or an index that only the run shows, int64 [1]."""
    check_indices("slice_tensor", value)
    return cast_to(reshape(value, [1]), DType.int64)


def _sliced(value: TensorValue, cuts: dict[int, tuple[Bound, Bound, int]], shape: list[Dim]) -> TensorValue:
    if not cuts:
        return value
    starts, stops, steps = (_column(list(column)) for column in zip(*cuts.values(), strict=True))
    axes = _column(list(cuts))
    result = emit("Slice", [value, starts, stops, axes, steps], value.type.with_shape(shape))
    for axis in cuts:
        # A slice of a static axis and a reversal have their size by themselves; others were named.
        if not isinstance(value.shape[axis], StaticDim) and shape[axis] not in (0, value.shape[axis]):
            result = sized(result, axis)
    return result


def _column(bounds: list[Bound]) -> TensorValue:
    if all(isinstance(bound, int) for bound in bounds):
        return current().constant(np.array(bounds, np.int64))
    return concat([current().constant(np.array([one], np.int64)) if isinstance(one, int) else one for one in bounds])


def _reshaped(value: TensorValue, dropped: list[int], added: list[int]) -> TensorValue:
    if dropped:
        shape = [dim for axis, dim in enumerate(value.shape) if axis not in dropped]
        value = emit("Squeeze", [value, _column([*dropped])], value.type.with_shape(shape))
    if added:
        shape = list(value.shape)
        for place in added:
            shape.insert(place, Dim(1))
        value = emit("Unsqueeze", [value, _column([*added])], value.type.with_shape(shape))
    return value
