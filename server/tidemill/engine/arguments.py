"""From a caller's arguments to arrays that fit a signature; its texts are those that users of MAX know."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tidemill.driver.buffer import Buffer
from tidemill.dtype import DType
from tidemill.engine.fit import fits
from tidemill.protocol.types import Array, TensorSpec

__all__ = ["arrange_arguments", "check_arguments"]


def arrange_arguments(specs: Sequence[TensorSpec], args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Array]:
    """Arrays by input name that share the memory of what was passed.

    Args:
        specs: The inputs.
        args: Numpy arrays, Buffers or DLPack tensors for the first inputs.
        kwargs: The same for the others, by name or as `input0`, `input1`, ...

    Raises:
        TypeError: A name is unknown or given twice.
        ValueError: The number of inputs differs, or one is no tensor.
    """
    values = [*args, *_named(specs[len(args) :], kwargs, specs)]
    if len(values) != len(specs):
        raise ValueError(f"Number of inputs ({len(values)}) does not match expected number ({len(specs)}) for model")
    return {spec.name: _to_array(value) for spec, value in zip(specs, values, strict=True)}


def check_arguments(specs: Sequence[TensorSpec], arrays: Mapping[str, Array]) -> dict[str, Array]:
    """The arrays as ONNX Runtime takes them: contiguous and in native byte order, copied only where they are not.

    Args:
        specs: The inputs.
        arrays: What `arrange_arguments` gave.

    Raises:
        ValueError: A dtype, a shape or two sizes of one symbol disagree.
    """
    uses: dict[str, tuple[int, str]] = {}
    for position, spec in enumerate(specs):
        _check(position, spec, arrays[spec.name])
        _check_symbols(position, spec, arrays[spec.name], uses)
    return {name: np.asarray(array, array.dtype.newbyteorder("="), order="C") for name, array in arrays.items()}


def _named(rest: Sequence[TensorSpec], kwargs: Mapping[str, Any], specs: Sequence[TensorSpec]) -> list[Any]:
    """The values given by name, in the order of the inputs."""
    start = len(specs) - len(rest)
    aliases = {f"input{start + index}": spec.name for index, spec in enumerate(rest)}
    names = {spec.name for spec in rest}
    given = {name if name in names else aliases.get(name, name): value for name, value in kwargs.items()}
    unknown = [name for name in given if name not in names]
    if unknown or len(given) < len(kwargs):
        taken = ", ".join(names) or "none"
        raise TypeError(f"unexpected or repeated keyword {', '.join(unknown or kwargs)!r}; still to be given: {taken}")
    return [given[spec.name] for spec in rest if spec.name in given]


def _to_array(value: Any) -> Array:
    if isinstance(value, np.generic):
        return _frozen(np.asarray(value))
    if not hasattr(value, "__dlpack__"):
        raise ValueError(
            "All positional arguments must be of the type `tidemill.driver.Buffer` or a tensor type implementing the "
            f"dlpack protocol. We do not currently support inputs of the type {type(value)}."
        )
    if isinstance(value, np.ndarray):
        return value
    buffer = Buffer.from_dlpack(value)
    return buffer.to_numpy() if buffer.is_host else _frozen(buffer.to_numpy())


def _frozen(copy: Array) -> Array:
    """A copy that nothing may be written back into, as the one who passed it would not see that."""
    copy.flags.writeable = False
    return copy


def _check(position: int, spec: TensorSpec, array: Array) -> None:
    if not fits(spec, array):
        given = _type(array.shape, DType.from_numpy(array.dtype))
        expected = _type(["*" if isinstance(dim, str) else dim for dim in spec.shape], spec.dtype)
        raise ValueError(
            f"Input at position {position}: Buffer of type {given} does not match expected type {expected} "
            f"(input {spec})"
        )


def _check_symbols(position: int, spec: TensorSpec, array: Array, uses: dict[str, tuple[int, str]]) -> None:
    for dim, size in zip(spec.shape, array.shape, strict=True):
        if not isinstance(dim, str) or not dim:
            continue
        expected, user = uses.setdefault(dim, (size, spec.name))
        if expected != size:
            raise ValueError(
                f"symbolic dimension {dim!r} for input {position} does not match prior uses of that dimension: "
                f"it is {size} in {spec.name!r} and {expected} in {user!r}"
            )


def _type(shape: Sequence[int | str], dtype: DType) -> str:
    return f"[({', '.join(map(str, shape))}), {_short(dtype)}]"


def _short(dtype: DType) -> str:
    """MAX's short names: f32, bf16, si32, ui8, bool."""
    for long, short in (("bfloat", "bf"), ("float", "f"), ("uint", "ui"), ("int", "si")):
        if dtype.name.startswith(long):
            return short + dtype.name.removeprefix(long)
    return dtype.name
