"""Which graph is being traced: the door through which operators append nodes; knows no concrete graph."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Protocol

from tidemill.graph.ir import Attribute, Block
from tidemill.graph.type import DeviceRef, TensorType
from tidemill.protocol.types import Array

if TYPE_CHECKING:
    from tidemill.graph.dim import Dim
    from tidemill.graph.graph import Graph
    from tidemill.graph.value import TensorValue
    from tidemill.graph.weight import Weight

__all__ = ["Builder", "activate", "as_tensor", "current", "current_or_none", "emit"]


class Builder(Protocol):
    """What operators need of a graph.

    Attributes:
        custom_extensions: The operator libraries that the graph will be loaded with.
        seed: What the next random operator is seeded with, None before `ops.random.set_seed`.
    """

    custom_extensions: tuple[object, ...]
    seed: int | None

    def append(
        self,
        op: str,
        inputs: Sequence[TensorValue | None],
        types: Sequence[TensorType],
        attributes: Mapping[str, Attribute],
        domain: str = "",
        blocks: Mapping[str, Block] | None = None,
    ) -> list[TensorValue]:
        """Append a node and return its outputs, one per type."""

    def block(self, types: Sequence[TensorType], forward: Callable[..., Sequence[TensorValue]]) -> Block:
        """Trace a branch or a loop body, which is given values of `types` and sees every value of the graph."""

    def constant(self, array: Array, device: DeviceRef | None = None) -> TensorValue:
        """A value known at trace time."""

    def extents(self, dims: Sequence[Dim]) -> TensorValue:
        """The sizes of dims at run time as an int64 vector."""

    def add_weight(self, weight: Weight) -> TensorValue:
        """The value of a weight, which appears in the graph at its first use."""

    def named_weight(self, name: str, type: TensorType, placeholder: bool = False) -> TensorValue:
        """The value of a weight by its full name, which needs no owner."""

    def define(self, dim: Dim, value: TensorValue, axis: int) -> None:
        """Make a symbol known whose size only an intermediate value shows."""

    def call(self, graph: Graph, arguments: Sequence[Any], prefix: str) -> list[TensorValue]:
        """Append a call of a subgraph."""

    def span(self, module: object, arguments: Sequence[tuple[str, Any]]) -> AbstractContextManager[None]:
        """Note which nodes one call of a module appends."""

    def knows(self, dim: Dim) -> bool:
        """Whether the symbols of a dim are known at run time."""

    def transposed_from(self, value: TensorValue) -> TensorValue | None:
        """The weight whose two axes `value` holds exchanged, None if it is no such thing."""


_CURRENT: ContextVar[Builder | None] = ContextVar("tidemill_graph", default=None)


def current() -> Builder:
    """The graph being traced; LookupError outside of one."""
    graph = _CURRENT.get()
    if graph is None:
        raise LookupError("No graph found")
    return graph


def current_or_none() -> Builder | None:
    """The graph being traced, None outside of one."""
    return _CURRENT.get()


@contextmanager
def activate(graph: Builder) -> Iterator[None]:
    """Trace into `graph` for the length of a with block."""
    token = _CURRENT.set(graph)
    try:
        yield
    finally:
        _CURRENT.reset(token)


def as_tensor(value: Any) -> TensorValue:
    """The graph value behind a TensorValue, a Weight or anything that has `__tensorvalue__`.

    Raises:
        TypeError: `value` is plain data, which has no dtype and device of its own.
    """
    convert = getattr(value, "__tensorvalue__", None)
    if convert is not None:
        result: TensorValue = convert()
        return result
    dtype = getattr(getattr(value, "dtype", None), "name", None)
    if dtype is None and not isinstance(value, (bool, int, float)):
        raise TypeError(
            f"TensorValue() argument must be a graph.TensorValue, or a graph.Weight, not {type(value).__name__!r}"
        )
    raise TypeError(
        f"TensorValue() can not be created directly from a {dtype or type(value).__name__!r}. "
        "Use ops.constant to convert to a TensorValue with a specific dtype."
    )


def emit(op: str, inputs: Sequence[TensorValue | None], type: TensorType, **attributes: Attribute) -> TensorValue:
    """Append a node of ONNX's own operator set with one output to the graph being traced."""
    return current().append(op, inputs, [type], attributes)[0]
