"""Routing: rows that are sent to the experts chosen for them, and put back in order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from tidemill.dtype import DType
from tidemill.graph.context import as_tensor, current, emit
from tidemill.graph.dim import Dim, StaticDim
from tidemill.graph.fault import op_fault
from tidemill.graph.ops.elementwise import equal, mul
from tidemill.graph.ops.indexing import gather
from tidemill.graph.ops.promote import TensorLike
from tidemill.graph.ops.scatter import scatter_nd
from tidemill.graph.ops.selection import nonzero
from tidemill.graph.ops.shaping import broadcast_to, concat, reshape, squeeze, unsqueeze

if TYPE_CHECKING:
    from tidemill.graph.value import TensorValue

__all__ = ["dispatch"]


def dispatch(
    x: TensorLike,
    chosen: TensorLike,
    experts: Sequence[Callable[[TensorValue], TensorValue]],
    factors: TensorLike | None = None,
) -> TensorValue:
    """What each row's chosen experts make of it; every expert computes only the rows that chose it.

    Args:
        x: [rows, in].
        chosen: int64 [rows, choices]: indices into `experts`. A row whose index is no expert's gives zeros.
        experts: Each maps [any number of rows, in] to [that number, out]; the number may be 0.
        factors: [rows, choices], what a row is multiplied by before it goes to an expert; None for nothing.

    Returns:
        [rows, choices, out].
    """
    rows, places = as_tensor(x), as_tensor(chosen)
    _check(rows, places, experts)
    count, choices = places.shape
    flat = reshape(places, (-1,))
    scale = None if factors is None else reshape(factors, (-1,))
    orders, results = [], []
    for number, expert in enumerate(experts):
        order = _where(equal(flat, number))
        taken = gather(rows, _row_of(order, choices), 0)
        if scale is not None:
            taken = mul(taken, unsqueeze(gather(scale, order, 0), 1))
        orders.append(order)
        results.append(expert(taken))
    spread = _put(concat(results), concat(orders), count * choices)
    return reshape(spread, (count, choices, spread.shape[1]))


def _where(flags: TensorValue) -> TensorValue:
    """The indices at which a bool vector is true."""
    return squeeze(nonzero(flags, _fresh_name()), 1)


def _row_of(place: TensorValue, choices: Dim) -> TensorValue:
    """Places count from 0, so ONNX's division, which truncates, floors here."""
    if choices == 1:
        return place
    return emit("Div", [place, current().extents([choices])], place.type)


def _put(rows: TensorValue, places: TensorValue, count: Dim) -> TensorValue:
    zero = current().constant(np.zeros((1, 1), rows.dtype.to_numpy()), rows.device)
    empty = broadcast_to(zero, (count, rows.shape[1]))
    return scatter_nd(empty, rows, unsqueeze(places, 1))


def _fresh_name() -> str:
    count = 0
    while current().knows(Dim(f"routed_{count}")):
        count += 1
    return f"routed_{count}"


def _check(rows: TensorValue, chosen: TensorValue, experts: Sequence[object]) -> None:
    given = {"x": rows, "chosen": chosen}
    if rows.rank != 2 or chosen.rank != 2 or chosen.shape[0] != rows.shape[0] or not experts:
        raise op_fault("dispatch", given, "takes x [rows, in], chosen [rows, choices] and at least one expert")
    if chosen.dtype is not DType.int64 or not isinstance(chosen.shape[1], StaticDim):
        raise op_fault("dispatch", given, "chosen must be int64 and have a known number of choices")
