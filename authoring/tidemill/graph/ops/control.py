"""Control flow that is decided while the model runs: branches and loops, whose bodies see the values around them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from tidemill.dtype import DType
from tidemill.graph.context import as_tensor, current
from tidemill.graph.fault import op_fault
from tidemill.graph.ops.constant import constant
from tidemill.graph.ops.promote import TensorLike, is_weak
from tidemill.graph.type import TensorType

if TYPE_CHECKING:
    from tidemill.graph.value import TensorValue

__all__ = ["cond", "while_loop"]


def cond(
    pred: TensorLike,
    out_types: Iterable[TensorType] | None,
    then_fn: Callable[[], Any],
    else_fn: Callable[[], Any],
) -> list[TensorValue]:
    """Run one of two branches.

    Both are traced, one is run. They may use every value, weight and module of the graph around them; a value that is
    made within one can only leave it by being returned.

    Args:
        pred: A bool without axes.
        out_types: What both branches return. A symbol that is new here names a size that only the branch knows.
        then_fn: Run if `pred` is true; returns a value, or a sequence of values, of `out_types`. Python numbers are
            taken as constants.
        else_fn: Run if `pred` is false.

    Returns:
        What the branch returned, one value per type.

    Raises:
        ValueError: `pred` is no scalar bool, a branch returns something else, or there is nothing to return.
    """
    chosen, types = as_tensor(pred), list(out_types or ())
    _check_scalar_bool("cond", "pred", chosen)
    if not types:
        raise ValueError(
            "cond: branches that return nothing do nothing here, because a graph has no side effects: give out_types, "
            "return the new contents of buffers, and store them afterwards"
        )
    branches = {
        name: current().block((), lambda branch=branch, name=name: _results(f"cond: {name}", branch(), types))
        for name, branch in (("then_branch", then_fn), ("else_branch", else_fn))
    }
    outputs = current().append("If", [chosen], types, {}, blocks=branches)
    for value in outputs:
        for axis, dim in enumerate(value.shape):
            current().define(dim, value, axis)
    return outputs


def while_loop(
    initial_values: Iterable[TensorLike] | TensorLike,
    predicate: Callable[..., TensorLike],
    body: Callable[..., Any],
) -> list[TensorValue]:
    """Run `body` on its own results as long as `predicate` holds.

    Both are traced once and may use every value of the graph around them. Sizes stay as they are from round to round:
    what grows is written into a tensor of the final size.

    Args:
        initial_values: What the first round is given; one value or several.
        predicate: Takes the values and returns a bool without axes. It is asked before the first round too.
        body: Takes the values and returns as many, of the same types.

    Returns:
        The values after the last round.

    Raises:
        ValueError: There are no values, the predicate gives no scalar bool, or the body gives other types.
    """
    given = initial_values if isinstance(initial_values, Iterable) else [initial_values]
    values = [as_tensor(value) for value in given]
    if not values:
        raise ValueError("While loops must have at least one iteration value.")
    types = [value.type for value in values]

    def iteration(_round: TensorValue, _go_on: TensorValue, *carried: TensorValue) -> list[TensorValue]:
        results = _results("while_loop: body", body(*carried), types)
        return [_ask(predicate, results), *results]

    counter, flag = TensorType(DType.int64, []), TensorType(DType.bool, [])
    loop = {"body": current().block([counter, flag, *types], iteration)}
    return current().append("Loop", [None, _ask(predicate, values), *values], types, {}, blocks=loop)


def _ask(predicate: Callable[..., TensorLike], values: Sequence[TensorValue]) -> TensorValue:
    answer = as_tensor(predicate(*values))
    _check_scalar_bool("while_loop", "predicate", answer)
    return answer


def _check_scalar_bool(op: str, name: str, value: TensorValue) -> None:
    if value.dtype is not DType.bool or value.rank:
        raise op_fault(op, {name: value}, f"{name} must be a bool without axes; index or reduce it, and compare")


def _results(what: str, returned: Any, types: Sequence[TensorType]) -> list[TensorValue]:
    many = isinstance(returned, Iterable) and not is_weak(returned)
    results = list(returned) if many else [returned]
    if len(results) != len(types):
        raise ValueError(f"{what} returns {len(results)} values, {len(types)} are expected: {types}")
    return [_result(what, place, one, type) for place, (one, type) in enumerate(zip(results, types, strict=True))]


def _result(what: str, place: int, returned: Any, type: TensorType) -> TensorValue:
    if is_weak(returned):
        returned = constant(returned, type.dtype, type.device)
    value = as_tensor(returned)
    pairs = zip(value.shape, type.shape, strict=False)
    fits = value.rank == type.rank and all(dim == wanted or not current().knows(wanted) for dim, wanted in pairs)
    if not fits or value.dtype is not type.dtype:
        raise ValueError(
            f"{what} returns {value.type} at place {place}, {type} is expected; cast it, or rebind dims that will be "
            "equal when it runs"
        )
    return value
