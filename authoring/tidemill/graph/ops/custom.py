"""Operators that come with a library of their own, which ONNX Runtime loads beside the model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tidemill.dtype import DType
from tidemill.graph.context import as_tensor, current
from tidemill.graph.type import DeviceRef, TensorType

if TYPE_CHECKING:
    from tidemill.graph.ir import Attribute
    from tidemill.graph.value import TensorValue

__all__ = ["custom", "inplace_custom"]

_BUILT_IN = ("com.microsoft",)
"""Domains whose operators ONNX Runtime has itself."""


def custom(
    name: str,
    device: DeviceRef,
    values: Sequence[Any],
    out_types: Sequence[TensorType],
    parameters: Mapping[str, bool | int | float | str | DType] | None = None,
    *,
    domain: str = "custom",
) -> list[TensorValue]:
    """Append an operator of a custom operator library.

    The library is given with the graph, `custom_extensions=["libops.so"]`, and loaded with the model; only then is it
    known whether it has the operator.

    Args:
        name: The operator's name in the library.
        device: Where it runs; a hint.
        values: Its inputs.
        out_types: The types of its outputs.
        parameters: Its attributes. Bools become 0 and 1, a DType its ONNX number.
        domain: The operator set that the library registers it in; "com.microsoft" for ONNX Runtime's own operators,
            which need no library.

    Returns:
        One value per type.

    Raises:
        ValueError: There is no library that could have the operator.
    """
    graph = current()
    if domain not in _BUILT_IN and not graph.custom_extensions:
        raise ValueError(
            f"no kernel registered for {name!r}: give the graph the operator library that has it, "
            "custom_extensions=['<path>.so'], or domain='com.microsoft' for ONNX Runtime's own operators"
        )
    types = [TensorType(type.dtype, type.shape, device) for type in out_types]
    attributes = {key: _attribute(name, key, value) for key, value in (parameters or {}).items()}
    outputs = graph.append(name, [as_tensor(value) for value in values], types, attributes, domain)
    for value in outputs:
        for axis, dim in enumerate(value.shape):
            graph.define(dim, value, axis)
    return outputs


def inplace_custom(
    name: str,
    device: DeviceRef,
    values: Sequence[Any],
    out_types: Sequence[TensorType] | None = None,
    parameters: Mapping[str, bool | int | float | str | DType] | None = None,
) -> list[TensorValue]:
    """Refused: ONNX operators do not change their inputs.

    Raises:
        NotImplementedError: Always; it says what to write instead.
    """
    raise NotImplementedError(
        f"inplace_custom({name!r}): ONNX operators do not change their inputs; use ops.custom with the changed buffer "
        "as an output, and ops.buffer_store to keep it"
    )


def _attribute(op: str, key: str, value: bool | int | float | str | DType) -> Attribute:
    if isinstance(value, DType):
        return value.onnx
    if not isinstance(value, (bool, int, float, str)):
        raise TypeError(f"unsupported parameter type {type(value)} for custom op {op!r}, parameter {key!r}")
    return int(value) if isinstance(value, bool) else value
