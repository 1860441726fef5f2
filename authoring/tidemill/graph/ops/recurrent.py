"""Recurrent networks over whole sequences, with ONNX's order of gates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from tidemill.dtype import DType
from tidemill.graph.context import as_tensor, current, emit
from tidemill.graph.dim import Dim, StaticDim
from tidemill.graph.fault import op_fault
from tidemill.graph.ops.promote import TensorLike
from tidemill.graph.type import TensorType

if TYPE_CHECKING:
    from tidemill.graph.value import TensorValue

__all__ = ["gru", "lstm"]


def lstm(
    x: TensorLike,
    weights: tuple[TensorLike, TensorLike, TensorLike],
    initial: tuple[TensorLike, TensorLike] | None = None,
) -> tuple[TensorValue, TensorValue, TensorValue]:
    """Long short-term memory (Hochreiter and Schmidhuber, 1997), forward and, with two directions, also backward.

    Args:
        x: [length, batch, in], float32 or float16. A length of 0 fails the run; a batch of 0 gives empty results.
        weights: Input weights [directions, 4 * hidden, in], recurrent ones [directions, 4 * hidden, hidden] and biases
            [directions, 8 * hidden], input biases first; gates in the order input, output, forget, cell.
        initial: The hidden and the cell state [directions, batch, hidden]; zeros by default.

    Returns:
        The hidden states [length, directions, batch, hidden], and the last hidden and cell state
        [directions, batch, hidden].
    """
    output, hidden, cell = _run("LSTM", x, weights, initial or (), gates=4)
    return output, hidden, cell


def gru(
    x: TensorLike,
    weights: tuple[TensorLike, TensorLike, TensorLike],
    initial: TensorLike | None = None,
) -> tuple[TensorValue, TensorValue]:
    """Gated recurrent unit (Cho et al., 2014), the reset gate applied after the recurrent product.

    Args:
        x: [length, batch, in], float32 or float16. A length of 0 fails the run; a batch of 0 gives empty results.
        weights: Input weights [directions, 3 * hidden, in], recurrent ones [directions, 3 * hidden, hidden] and biases
            [directions, 6 * hidden], input biases first; gates in the order update, reset, new.
        initial: The hidden state [directions, batch, hidden]; zeros by default.

    Returns:
        The hidden states [length, directions, batch, hidden], and the last one [directions, batch, hidden].
    """
    states = () if initial is None else (initial,)
    output, hidden = _run("GRU", x, weights, states, gates=3, linear_before_reset=1)
    return output, hidden


def _run(
    op: str, x: TensorLike, weights: Sequence[TensorLike], states: Sequence[TensorLike], *, gates: int, **extra: int
) -> list[TensorValue]:
    value, parameters, initial = as_tensor(x), [as_tensor(one) for one in weights], [as_tensor(one) for one in states]
    directions, hidden = _check(op, value, parameters, initial, gates)
    batch = value.shape[1]
    padded = _never_empty(value)
    initial = [_padded(state, 1, padded.shape[1]) for state in initial] if padded is not value else initial
    types = _result_types(padded, directions, hidden, states=gates - 2)
    direction = "bidirectional" if directions == 2 else "forward"
    inputs = [padded, *parameters, None, *initial]
    results = current().append(op, inputs, types, {"hidden_size": hidden, "direction": direction, **extra})
    return results if padded is value else [_cut(result, batch) for result in results]


def _result_types(value: TensorValue, directions: int, hidden: int, *, states: int) -> list[TensorType]:
    length, batch = value.shape[:2]
    state = value.type.with_shape([directions, batch, hidden])
    return [value.type.with_shape([length, directions, batch, hidden]), *[state] * states]


def _never_empty(value: TensorValue) -> TensorValue:
    """`value` with a batch of at least 1, failing the run if the length is 0: ONNX Runtime's kernels end the process.

    The pad's amount is multiplied by length // length, which is 1, or an error that the run reports.
    """
    length, batch = value.shape[:2]
    if all(isinstance(dim, StaticDim) and dim.dim > 0 for dim in (length, batch)):
        return value
    if length == 0:
        raise op_fault("recurrent", {"x": value}, "a sequence of length 0 has no last state")
    sizes = current().extents([length])
    one = emit("Div", [sizes, sizes], sizes.type)
    return _padded(value, 1, None, one)


def _padded(value: TensorValue, axis: int, goal: Dim | None, factor: TensorValue | None = None) -> TensorValue:
    """`value` with zeros appended along `axis` if it is empty there."""
    size = current().extents([value.shape[axis]])
    ones = _int64([1])
    lacking = emit("Sub", [ones, emit("Min", [size, ones], size.type)], size.type)
    if factor is not None:
        lacking = emit("Mul", [lacking, factor], size.type)
    pads = emit(
        "Concat",
        [_int64([0] * (value.rank + axis)), lacking, _int64([0] * (value.rank - axis - 1))],
        TensorType(DType.int64, [2 * value.rank]),
        axis=0,
    )
    padded = goal if goal is not None else Dim(_fresh("batch_or_one"))
    result = emit("Pad", [value, pads], value.type.with_shape(_with(value, axis, padded)))
    current().define(padded, result, axis)
    return result


def _cut(value: TensorValue, batch: Dim) -> TensorValue:
    """The first `batch` entries of the last but one axis."""
    axis = value.rank - 2
    bounds = [_int64([0]), current().extents([batch]), _int64([axis])]
    return emit("Slice", [value, *bounds], value.type.with_shape(_with(value, axis, batch)))


def _with(value: TensorValue, axis: int, dim: Dim) -> list[Dim]:
    return [*value.shape[:axis], dim, *value.shape[axis + 1 :]]


def _fresh(name: str) -> str:
    count = 1
    while current().knows(Dim(f"{name}_{count}")):
        count += 1
    return f"{name}_{count}"


def _int64(values: Sequence[int]) -> TensorValue:
    return current().constant(np.array(values, np.int64))


def _check(
    op: str, value: TensorValue, parameters: Sequence[TensorValue], initial: Sequence[TensorValue], gates: int
) -> tuple[int, int]:
    """The number of directions and the size of the hidden state."""
    name = op.lower()
    given = {"x": value, "weight": parameters[0], "recurrent": parameters[1], "bias": parameters[2]}
    if value.rank != 3 or value.dtype not in (DType.float32, DType.float16):
        raise op_fault(name, given, "x must be [length, batch, in], float32 or float16")
    if not all(one.shape.is_static and one.dtype is value.dtype for one in parameters) or parameters[1].rank != 3:
        raise op_fault(name, given, "the weights must have known sizes and the dtype of x")
    directions, _, hidden = parameters[1].shape.static_dims
    shapes = [[directions, gates * hidden, value.shape[2]], [directions, gates * hidden, hidden]]
    shapes.append([directions, 2 * gates * hidden])
    if directions not in (1, 2) or [list(one.shape) for one in parameters] != shapes:
        raise op_fault(name, given, f"the weights must be {shapes}")
    for state in initial:
        if list(state.shape) != [directions, value.shape[1], hidden] or state.dtype is not value.dtype:
            text = f"an initial state must be [{directions}, {value.shape[1]}, {hidden}] of the dtype of x"
            raise op_fault(name, given | {"initial": state}, text)
    return directions, hidden
