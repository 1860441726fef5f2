"""Symbolic values: what a module's `__call__` computes with while it is traced; every operator appends a node."""

from __future__ import annotations

from typing import Any, NoReturn

from tidemill.dtype import DType
from tidemill.graph.context import Builder, current
from tidemill.graph.ir import Edge
from tidemill.graph.ops import division, elementwise, indexing, linalg, placement, power, promote, reduction, shaping
from tidemill.graph.shape import Shape, ShapeLike
from tidemill.graph.type import DeviceRef, TensorType

__all__ = ["TensorValue", "Value"]


class Value:
    """A value of a graph."""

    @property
    def tensor(self) -> TensorValue:
        """This value as a tensor; TypeError if it is none."""
        if isinstance(self, TensorValue):
            return self
        raise TypeError(f"{type(self).__name__} is not a tensor")


class TensorValue(Value):
    """A tensor that does not exist yet; made by graphs and operators.

    Comparisons are elementwise, so values have no truth and are hashed by identity.
    """

    def __init__(self, edge: Edge, graph: Builder) -> None:
        self._edge = edge
        self._graph = graph

    def __tensorvalue__(self) -> TensorValue:
        return self

    @property
    def edge(self) -> Edge:
        """The record of this value in the graph being traced.

        Raises:
            ValueError: The value belongs to another graph, such as the one around a subgraph.
        """
        if self._graph is not current():
            raise ValueError(
                f"{self!r} belongs to another graph than the one being traced; a subgraph can not capture values "
                "of the graph around it: pass it as an argument"
            )
        return self._edge

    @property
    def type(self) -> TensorType:
        """dtype, shape and device."""
        return self._edge.type

    @property
    def dtype(self) -> DType:
        """The element type."""
        return self.type.dtype

    @property
    def shape(self) -> Shape:
        """The dims, a copy."""
        return Shape(self.type.shape)

    @property
    def device(self) -> DeviceRef:
        """Where it will live."""
        return self.type.device

    @property
    def rank(self) -> int:
        """The number of axes."""
        return self.type.rank

    @property
    def T(self) -> TensorValue:  # noqa: N802  (numpy's name)
        """The last two axes exchanged; IndexError below rank 2."""
        return self.transpose(-1, -2)

    def argmax(self, axis: int = -1) -> TensorValue:
        """The index of the largest element along `axis`, which stays with size 1."""
        return reduction.argmax(self, axis)

    def broadcast_to(self, shape: ShapeLike) -> TensorValue:
        """Repeated to fill `shape`."""
        return shaping.broadcast_to(self, shape)

    def cast(self, dtype: DType) -> TensorValue:
        """In another dtype."""
        return elementwise.cast(self, dtype)

    def flatten(self, start_dim: int = 0, end_dim: int = -1) -> TensorValue:
        """The axes from `start_dim` to `end_dim` as one."""
        return shaping.flatten(self, start_dim, end_dim)

    def max(self, axis: int = -1) -> TensorValue:
        """The largest element along `axis`, which stays with size 1."""
        return reduction.max(self, axis=axis)

    def mean(self, axis: int = -1) -> TensorValue:
        """The mean along `axis`, which stays with size 1."""
        return reduction.mean(self, axis)

    def min(self, axis: int = -1) -> TensorValue:
        """The smallest element along `axis`, which stays with size 1."""
        return reduction.min(self, axis=axis)

    def permute(self, dims: list[int]) -> TensorValue:
        """The axes in another order."""
        return shaping.permute(self, dims)

    def print(self, label: str = "debug_tensor") -> None:
        """Only a warning: a served model prints nothing; return the value as an output to see it."""
        placement.print(self, label)

    def to(self, device: Any) -> TensorValue:
        """As if on another device; the execution provider decides what runs where."""
        return placement.transfer_to(self, device)

    def rebind(self, shape: ShapeLike, message: str = "") -> TensorValue:
        """The same tensor under other dims, checked when it runs."""
        return shaping.rebind(self, shape, message)

    def reshape(self, shape: ShapeLike) -> TensorValue:
        """The same elements under another shape."""
        return shaping.reshape(self, shape)

    def stdev(self, axis: int = -1) -> TensorValue:
        """The standard deviation of the population along `axis`, which stays with size 1."""
        return elementwise.sqrt(self.var(axis))

    def transpose(self, dim_1: int, dim_2: int) -> TensorValue:
        """Two axes exchanged."""
        return shaping.transpose(self, dim_1, dim_2)

    def var(self, axis: int = -1) -> TensorValue:
        """The variance of the population along `axis`, which stays with size 1."""
        centred = self - self.mean(axis)
        return reduction.mean(centred * centred, axis)

    def __getitem__(self, index: Any) -> TensorValue:
        return indexing.slice_tensor(self, index)

    def __add__(self, other: promote.TensorLike) -> TensorValue:
        return elementwise.add(self, other)

    def __radd__(self, other: promote.TensorLike) -> TensorValue:
        return elementwise.add(other, self)

    def __sub__(self, other: promote.TensorLike) -> TensorValue:
        return elementwise.sub(self, other)

    def __rsub__(self, other: promote.TensorLike) -> TensorValue:
        return elementwise.sub(other, self)

    def __mul__(self, other: promote.TensorLike) -> TensorValue:
        return elementwise.mul(self, other)

    def __rmul__(self, other: promote.TensorLike) -> TensorValue:
        return elementwise.mul(other, self)

    def __truediv__(self, other: promote.TensorLike) -> TensorValue:
        return elementwise.div(self, other)

    def __rtruediv__(self, other: promote.TensorLike) -> TensorValue:
        return elementwise.div(other, self)

    def __floordiv__(self, other: promote.TensorLike) -> TensorValue:
        return division.floor_div(self, other)

    def __rfloordiv__(self, other: promote.TensorLike) -> TensorValue:
        return division.floor_div(other, self)

    def __mod__(self, other: promote.TensorLike) -> TensorValue:
        return division.mod(self, other)

    def __rmod__(self, other: promote.TensorLike) -> TensorValue:
        return division.mod(other, self)

    def __divmod__(self, other: promote.TensorLike) -> tuple[TensorValue, TensorValue]:
        return self // other, self % other

    def __rdivmod__(self, other: promote.TensorLike) -> tuple[TensorValue, TensorValue]:
        return other // self, other % self

    def __pow__(self, other: promote.TensorLike) -> TensorValue:
        return power.pow(self, other)

    def __rpow__(self, other: promote.TensorLike) -> TensorValue:
        return power.pow(other, self)

    def __matmul__(self, other: promote.TensorLike) -> TensorValue:
        return linalg.matmul(self, other)

    def __rmatmul__(self, other: promote.TensorLike) -> TensorValue:
        return linalg.matmul(other, self)

    def __neg__(self) -> TensorValue:
        return elementwise.negate(self)

    def __round__(self, digits: int = 0) -> TensorValue:
        if digits:
            raise ValueError(f"round(tensor, {digits}): only whole numbers; scale it first")
        return elementwise.round(self)

    def __and__(self, other: promote.TensorLike) -> TensorValue:
        return elementwise.logical_and(self, other)

    def __rand__(self, other: promote.TensorLike) -> TensorValue:
        return elementwise.logical_and(other, self)

    def __or__(self, other: promote.TensorLike) -> TensorValue:
        return elementwise.logical_or(self, other)

    def __ror__(self, other: promote.TensorLike) -> TensorValue:
        return elementwise.logical_or(other, self)

    def __xor__(self, other: promote.TensorLike) -> TensorValue:
        return elementwise.logical_xor(self, other)

    def __rxor__(self, other: promote.TensorLike) -> TensorValue:
        return elementwise.logical_xor(other, self)

    def __invert__(self) -> TensorValue:
        return elementwise.logical_not(self)

    def __eq__(self, other: promote.TensorLike) -> TensorValue:  # type: ignore[override]
        return elementwise.equal(self, other)

    def __ne__(self, other: promote.TensorLike) -> TensorValue:  # type: ignore[override]
        return elementwise.not_equal(self, other)

    def __gt__(self, other: promote.TensorLike) -> TensorValue:
        return elementwise.greater(self, other)

    def __ge__(self, other: promote.TensorLike) -> TensorValue:
        return elementwise.greater_equal(self, other)

    def __lt__(self, other: promote.TensorLike) -> TensorValue:
        return elementwise.greater(other, self)

    def __le__(self, other: promote.TensorLike) -> TensorValue:
        return elementwise.greater_equal(other, self)

    __hash__ = object.__hash__

    # An unset `__iter__` would let Python iterate through `__getitem__` without end.
    __iter__ = None

    # numpy must not take `array @ value` apart element by element.
    __array_ufunc__ = None

    def __bool__(self) -> NoReturn:
        raise TypeError(
            f"{self!r} has no truth value while it is traced: use ops.where to choose between values, "
            "`is None` to test for a missing one"
        )

    def __repr__(self) -> str:
        return f"TensorValue(dtype={self.dtype.name}, shape={list(self.shape)}, device={self.device})"
