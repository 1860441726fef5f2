"""A module as a table: where its weights are, what they weigh, and which parts share a function."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from tidemill.graph.dim import Dim, StaticDim
from tidemill.graph.weight import Weight
from tidemill.nn.layer.tree_walk import Visit, visits

if TYPE_CHECKING:
    from tidemill.graph.graph import Graph
    from tidemill.nn.layer.module import Module

__all__ = ["summarize"]


class _Row(NamedTuple):
    path: str
    title: str
    weights: str
    parameters: str
    dtype: str
    function: str


_HEAD = _Row("path", "class", "weights", "parameters", "dtype", "function")


def summarize(root: Module, graph: Graph | None) -> str:
    """One line per module that owns weights, depth first, and a line of totals.

    Args:
        root: The module.
        graph: Its trace; modules that call a function that stands above in full are folded into one line. None to show
            every module and leave that column out.
    """
    calls = graph.function_calls if graph is not None else {}
    rows = list(_rows(_depth_first(root), calls))
    total = _row("total", type(root).__name__, root.raw_state_dict().values(), _saving(graph))
    return _table([_HEAD, *rows, total], columns=len(_HEAD) - (graph is None))


def _rows(order: Sequence[Visit], calls: Mapping[str, str]) -> Iterator[_Row]:
    shown: set[str] = set()
    folded = ""
    for visit in order:
        if folded and visit.path.startswith(f"{folded}."):
            continue
        function = calls.get(visit.path, "")
        folded = visit.path if function in shown else ""
        weights = [*visit.module.raw_state_dict().values()] if folded else [*visit.module.owned_weights().values()]
        if function:
            shown.add(function)
        if weights or function:
            yield _row(visit.path or ".", type(visit.module).__name__, weights, function)


def _depth_first(root: Module) -> list[Visit]:
    found = list(visits(root))
    places = {visit.path: place for place, visit in enumerate(found)}

    def key(visit: Visit) -> list[int]:
        parts = visit.path.split(".")
        return [places.get(".".join(parts[: depth + 1]), 0) for depth in range(len(parts))]

    return sorted(found, key=key)


def _row(path: str, title: str, weights: Iterable[Weight], function: str) -> _Row:
    owned = list(weights)
    dtypes = ", ".join(dict.fromkeys(weight.dtype.name for weight in owned))
    return _Row(path, title, str(len(owned)) if owned else "", _parameters(owned), dtypes, function)


def _parameters(weights: Sequence[Weight]) -> str:
    if not weights:
        return ""
    total: Dim = sum((weight.shape.num_elements for weight in weights), StaticDim(0))
    size: Dim = sum((weight.shape.num_elements * weight.dtype.size_in_bytes for weight in weights), StaticDim(0))
    return str(total) if total.symbols else f"{int(total):,} ({_size_text(int(size))})"


def _size_text(size: float) -> str:
    for unit in ("B", "kB", "MB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:,.3g} GB"


def _saving(graph: Graph | None) -> str:
    if graph is None:
        return ""
    shared = graph.functions.values()
    return f"{len(shared)} shared, {sum(function.saved for function in shared)} nodes saved" if shared else "none"


def _table(rows: Sequence[_Row], columns: int) -> str:
    widths = [max(len(row[column]) for row in rows) for column in range(columns)]
    lines = ["  ".join(_cell(row, column, widths[column]) for column in range(columns)).rstrip() for row in rows]
    rule = "  ".join("-" * width for width in widths)
    return "\n".join([lines[0], rule, *lines[1:-1], rule, lines[-1]])


def _cell(row: _Row, column: int, width: int) -> str:
    is_number = _HEAD[column] in ("weights", "parameters")
    return row[column].rjust(width) if is_number else row[column].ljust(width)
