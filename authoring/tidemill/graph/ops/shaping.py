"""Operators that rearrange elements and change none."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from tidemill.dtype import DType
from tidemill.graph.context import as_tensor, current, emit
from tidemill.graph.dim import Dim, DimLike, StaticDim, SymbolicDim, exact_quotient
from tidemill.graph.fault import op_fault
from tidemill.graph.ops.axes import check_axis, resolve_axis
from tidemill.graph.ops.promote import TensorLike, cast_to
from tidemill.graph.ops.sizing import sized
from tidemill.graph.shape import Shape, ShapeLike
from tidemill.graph.type import TensorType

if TYPE_CHECKING:
    from tidemill.graph.value import TensorValue

__all__ = [
    "broadcast_to",
    "chunk",
    "concat",
    "flatten",
    "permute",
    "rebind",
    "reshape",
    "shape_to_tensor",
    "split",
    "squeeze",
    "stack",
    "transpose",
    "unsqueeze",
]


def reshape(x: TensorLike, shape: ShapeLike) -> TensorValue:
    """The same elements in row-major order under another shape.

    Args:
        x: Any tensor.
        shape: Sizes, symbols and arithmetic over symbols; one -1 takes what is left. 0 is a size of zero.

    Raises:
        ValueError: The number of elements provably differs, or cannot be shown to be equal.
    """
    value = as_tensor(x)
    target = _resolve_free(value, Shape(shape))
    if target.num_elements != value.type.num_elements:
        raise op_fault(
            "reshape",
            {"input": value, "new_shape": list(target)},
            f"[reshape] input and output number of elements must match: {value.shape} != {target}\n"
            "If you are confident this is correct, rebind the input's dims first, for example "
            "x.rebind([(n // 4) * 4, m]).reshape([n // 4, 4, m]).",
        )
    if target == value.shape:
        return value
    vector, zeros = _target_vector(value, target)
    attributes = {"allowzero": 1} if zeros else {}
    return emit("Reshape", [value, vector], value.type.with_shape(target), **attributes)


def flatten(x: TensorLike, start_dim: int = 0, end_dim: int = -1) -> TensorValue:
    """The axes from `start_dim` to `end_dim`, both included, as one; a scalar becomes [1]."""
    value = as_tensor(x)
    if not value.rank:
        return reshape(value, [1])
    first, last = resolve_axis("flatten", value, start_dim), resolve_axis("flatten", value, end_dim)
    if first > last:
        raise op_fault("flatten", {"x": value}, f"start_dim {start_dim} comes after end_dim {end_dim}")
    merged = Shape(value.shape[first : last + 1]).num_elements
    return reshape(value, (*value.shape[:first], merged, *value.shape[last + 1 :]))


def permute(x: TensorLike, dims: Sequence[int]) -> TensorValue:
    """The axes in another order: axis `i` of the result is axis `dims[i]` of `x`."""
    value = as_tensor(x)
    order = [resolve_axis("permute", value, axis) for axis in dims]
    if sorted(order) != list(range(value.rank)):
        raise op_fault("permute", {"x": value}, f"dims {list(dims)} must name each of the {value.rank} axes once")
    if order == sorted(order):
        return value
    shape = [value.shape[axis] for axis in order]
    return emit("Transpose", [value], value.type.with_shape(shape), perm=tuple(order))


def transpose(x: TensorLike, axis_1: int, axis_2: int) -> TensorValue:
    """Two axes exchanged."""
    value = as_tensor(x)
    order = list(range(value.rank))
    first, second = resolve_axis("transpose", value, axis_1), resolve_axis("transpose", value, axis_2)
    order[first], order[second] = second, first
    return permute(value, order)


def squeeze(x: TensorLike, axis: int) -> TensorValue:
    """Without `axis`, whose size must be 1."""
    value = as_tensor(x)
    index = resolve_axis("squeeze", value, axis)
    if value.shape[index] != 1:
        raise op_fault("squeeze", {"x": value}, f"axis {axis} has size {value.shape[index]}, only 1 can be left out")
    shape = value.shape[:index] + value.shape[index + 1 :]
    return emit("Squeeze", [value, _axes(index)], value.type.with_shape(shape))


def unsqueeze(x: TensorLike, axis: int) -> TensorValue:
    """With a new axis of size 1 at `axis` of the result."""
    value = as_tensor(x)
    index = check_axis("unsqueeze", axis, value.rank + 1)
    shape = [*value.shape[:index], Dim(1), *value.shape[index:]]
    return emit("Unsqueeze", [value, _axes(index)], value.type.with_shape(shape))


def broadcast_to(
    x: TensorLike, shape: ShapeLike | TensorValue, out_dims: Iterable[DimLike] | None = None
) -> TensorValue:
    """Repeated along axes of size 1, and along new leading axes, to fill `shape`.

    Args:
        x: Any tensor.
        shape: The dims of the result, or an int64 vector of its sizes.
        out_dims: The dims of the result where `shape` is a vector.
    """
    value = as_tensor(x)
    if hasattr(shape, "__tensorvalue__"):
        return _broadcast_to_sizes(value, as_tensor(shape), out_dims)
    target = Shape(shape)
    lead = len(target) - value.rank
    fits = lead >= 0 and all(dim in (1, goal) for dim, goal in zip(value.shape, target[lead:], strict=True))
    if not fits:
        raise op_fault("broadcast_to", {"x": value}, f"shape {value.shape} does not broadcast to {target}")
    if target == value.shape:
        return value
    given = [Dim(-1)] * lead + list(value.shape)
    goal = [Dim(1) if dim == wanted else wanted for dim, wanted in zip(given, target, strict=True)]
    return emit("Expand", [value, current().extents(goal)], value.type.with_shape(target))


def _broadcast_to_sizes(value: TensorValue, sizes: TensorValue, dims: Iterable[DimLike] | None) -> TensorValue:
    if dims is None:
        raise ValueError("broadcast_to: the dims of a result whose shape is a tensor must be named with out_dims=")
    target = Shape(dims)
    if sizes.shape != Shape([len(target)]):
        raise op_fault("broadcast_to", {"x": value, "shape": sizes}, f"must be one size for each of {target}")
    result = emit("Expand", [value, cast_to(sizes, DType.int64)], value.type.with_shape(target))
    for axis in range(len(target)):
        result = sized(result, axis)
    return result


def concat(xs: Iterable[TensorLike], axis: int = 0) -> TensorValue:
    """Tensors one after the other along `axis`; all other dims must be equal."""
    values = [as_tensor(x) for x in xs]
    if not values:
        raise ValueError("concat: takes at least one tensor")
    first = values[0]
    index = resolve_axis("concat", first, axis)
    for value in values[1:]:
        _check_like("concat", first, value, index)
    total = sum((value.shape[index] for value in values[1:]), first.shape[index])
    shape = [*first.shape[:index], total, *first.shape[index + 1 :]]
    return first if len(values) == 1 else emit("Concat", values, first.type.with_shape(shape), axis=index)


def stack(xs: Iterable[TensorLike], axis: int = 0) -> TensorValue:
    """Tensors of one shape side by side along a new axis."""
    return concat([unsqueeze(x, axis) for x in xs], axis)


def split(x: TensorLike, split_sizes: Iterable[DimLike], axis: int = 0) -> list[TensorValue]:
    """Cut along `axis` into pieces of the given sizes, which must add up to it; they may be symbolic."""
    value, sizes = as_tensor(x), Shape(split_sizes)
    index = resolve_axis("split", value, axis)
    if not sizes:
        return []
    total = sum(sizes[1:], sizes[0])
    if value.shape[index] != total or any(isinstance(size, StaticDim) and size.dim < 0 for size in sizes):
        raise op_fault("split", {"x": value}, f"sizes {sizes} must add up to axis {axis} ({value.shape[index]})")
    types = [_resized(value, index, size) for size in sizes]
    return current().append("Split", [value, current().extents(sizes)], types, {"axis": index})


def chunk(x: TensorLike, chunks: int, axis: int = 0) -> list[TensorValue]:
    """Cut along `axis` into `chunks` equal pieces."""
    value = as_tensor(x)
    dim = value.shape[resolve_axis("chunk", value, axis)]
    if chunks < 1 or not isinstance(dim, StaticDim) or dim.dim % chunks:
        raise ValueError(f"chunk: chunks={chunks} must statically divide x.shape[axis]={dim!r}")
    return [value] if chunks == 1 else split(value, [dim.dim // chunks] * chunks, axis)


def shape_to_tensor(shape: ShapeLike) -> TensorValue:
    """The sizes of dims at run time, int64 [len(shape)]."""
    return current().extents(Shape(shape))


def rebind(x: TensorLike, shape: ShapeLike, message: str = "") -> TensorValue:
    """The same tensor under other dims: a claim, checked when it runs.

    A dim that was not known before is a new name for the size it stands for. Any other must be what the size turns
    out to be, else the run fails.

    Args:
        x: Any tensor.
        shape: One dim per axis.
        message: Why the claim holds, shown when the ranks differ.
    """
    value = as_tensor(x)
    target = Shape(shape)
    if len(target) != value.rank:
        raise op_fault("rebind", {"x": value}, f"{target} must have rank {value.rank}. {message}".strip())
    for axis, dim in enumerate(target):
        if dim != value.shape[axis]:
            value = _rebind_axis(value, axis, dim)
    return value


def _rebind_axis(value: TensorValue, axis: int, dim: Dim) -> TensorValue:
    type = _resized(value, axis, dim)
    if isinstance(dim, SymbolicDim) and not current().knows(dim):
        renamed = emit("Identity", [value], type)
        current().define(dim, renamed, axis)
        return renamed
    return emit("Reshape", [value, current().extents(type.shape)], type, allowzero=1)


def _resolve_free(value: TensorValue, shape: Shape) -> Shape:
    free = [axis for axis, dim in enumerate(shape) if dim == -1]
    if not free:
        return shape
    rest = Shape(dim for dim in shape if dim != -1).num_elements
    size = None if len(free) > 1 or rest == 0 else exact_quotient(value.type.num_elements, rest)
    if size is None:
        raise op_fault(
            "reshape",
            {"input": value, "new_shape": list(shape)},
            f"[reshape] -1 must be one dim, and the other dims ({rest} elements) must divide {value.shape}",
        )
    return Shape(size if dim == -1 else dim for dim in shape)


def _target_vector(value: TensorValue, target: Shape) -> tuple[TensorValue, bool]:
    """ONNX's shape input for a Reshape, constant where it can be, and whether 0 in it means zero."""
    dynamic = [axis for axis, dim in enumerate(target) if not isinstance(dim, StaticDim)]
    has_zero = any(dim == 0 for dim in target)
    if not dynamic or (len(dynamic) == 1 and not has_zero):
        sizes = [int(dim) if isinstance(dim, StaticDim) else -1 for dim in target]
        return current().constant(np.array(sizes, np.int64)), has_zero
    copied = all(axis < value.rank and target[axis] == value.shape[axis] for axis in dynamic)
    if copied and not has_zero:
        sizes = [int(dim) if isinstance(dim, StaticDim) else 0 for dim in target]
        return current().constant(np.array(sizes, np.int64)), False
    return current().extents(target), True


def _check_like(op: str, first: TensorValue, value: TensorValue, axis: int) -> None:
    same = value.rank == first.rank and all(
        one == other for index, (one, other) in enumerate(zip(first.shape, value.shape, strict=True)) if index != axis
    )
    if not same or value.dtype is not first.dtype:
        raise op_fault(
            op,
            {"first": first, "other": value},
            f"all inputs must have one dtype and be equal in every dim but axis {axis}",
        )


def _resized(value: TensorValue, axis: int, dim: DimLike) -> TensorType:
    return value.type.with_shape([*value.shape[:axis], dim, *value.shape[axis + 1 :]])


def _axes(axis: int) -> TensorValue:
    return current().constant(np.array([axis], np.int64))
