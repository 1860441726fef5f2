"""What a graph declares to take and to return: edges and names of inputs and outputs, checked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tidemill.graph.dim import AlgebraicDim
from tidemill.graph.ir import Edge
from tidemill.graph.naming import Namer
from tidemill.graph.type import BufferType, TensorType, Type
from tidemill.graph.value import Value

__all__ = ["as_sequence", "input_edges", "output_names"]


def input_edges(types: Sequence[Type], names: Sequence[str] | None) -> list[Edge]:
    """The edges of declared inputs; `input0`, `input1`, ... without names.

    Raises:
        TypeError: A type is none of an input.
        ValueError: The number of names differs, one is used twice, or a dim is arithmetic.
    """
    given = list(names) if names is not None else [f"input{place}" for place in range(len(types))]
    if len(given) != len(types) or len(set(given)) != len(given) or not all(given):
        raise ValueError(f"{len(types)} inputs need as many different names, not {given}")
    for name, type in zip(given, types, strict=True):
        _check_input(name, type)
    return [Edge(_content(type), name) for name, type in zip(given, types, strict=True)]


def output_names(count: int, names: Sequence[str] | None, inputs: Sequence[str]) -> tuple[str, ...]:
    """What outputs are called: `output`, or `output_0`, `output_1`, ... if nobody names them.

    Raises:
        ValueError: The number of names differs, or one is empty, used twice or an input's.
    """
    if names is None:
        namer = Namer(inputs)
        return tuple(namer.name("output" if count == 1 else f"output_{place}") for place in range(count))
    given = tuple(names)
    if len(given) != count or len(set(given)) != count or not all(given):
        raise ValueError(f"{count} outputs need as many different names, not {list(given)}")
    for name in given:
        if name in inputs:
            raise ValueError(f"output {name!r} has an input's name; ONNX needs another: pass output_names=")
    return given


def as_sequence(result: Any) -> Sequence[Any]:
    """What a forward function returned as a sequence of values: None is none, a value is one."""
    if result is None:
        return ()
    return (result,) if isinstance(result, Value) else tuple(result)


def _check_input(name: str, type: object) -> None:
    if not isinstance(type, (TensorType, BufferType)):
        raise TypeError(f"the type of input {name!r} must be a TensorType or a BufferType, not {type!r}")
    for axis, dim in enumerate(type.shape):
        if isinstance(dim, AlgebraicDim):
            raise ValueError(f"input {name!r} has {dim} on axis {axis}; an input's dim is a size or a name")


def _content(type: Type) -> TensorType:
    return TensorType(type.dtype, type.shape, type.device)
