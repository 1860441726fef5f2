"""Whether tensors fit a model's signature; the one place where names, dtypes, shapes and symbols are compared."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any, TypeAlias

import numpy as np

from tidemill.dtype import DType
from tidemill.errors import InvalidArgument
from tidemill.protocol.types import Array, TensorSpec

__all__ = ["Signature", "check_inputs", "check_names"]

_Shapes: TypeAlias = tuple[tuple[str, "np.dtype[Any]", tuple[int, ...]], ...]

_REMEMBERED = 256


class Signature:
    """What a model takes; remembers the shapes that it found right, as callers repeat theirs."""

    def __init__(self, specs: Iterable[TensorSpec]) -> None:
        self.specs = tuple(specs)
        self._right: dict[_Shapes, Mapping[str, int]] = {}

    def check(self, inputs: Mapping[str, Array]) -> Mapping[str, int]:
        """The same as `check_inputs`; the answer is shared and must not be changed."""
        given = tuple([(name, array.dtype, array.shape) for name, array in inputs.items()])
        sizes = self._right.get(given)
        if sizes is None:
            sizes = check_inputs(self.specs, inputs)
            if len(self._right) >= _REMEMBERED:
                self._right.pop(next(iter(self._right)))
            self._right[given] = sizes
        return sizes


def check_inputs(specs: Iterable[TensorSpec], inputs: Mapping[str, Array]) -> dict[str, int]:
    """Compare arrays with the inputs that a model declares.

    Args:
        specs: The declared inputs.
        inputs: Arrays by name.

    Returns:
        The size of each symbolic dim by name. ONNX Runtime does not check that equal symbols agree, so this does.

    Raises:
        InvalidArgument: A name is unknown or missing, or a dtype, rank, fixed dim or symbol disagrees; the message
            says which input and axis, what was given and what was expected.
    """
    declared = {spec.name: spec for spec in specs}
    check_names("input", declared, inputs)
    missing = [str(spec) for name, spec in declared.items() if name not in inputs]
    if missing:
        raise InvalidArgument(f"missing input {', '.join(missing)}; given were {_listed(inputs)}")
    sizes: dict[str, int] = {}
    owners: dict[str, str] = {}
    for name, spec in declared.items():
        _check_tensor(spec, inputs[name])
        for axis, (dim, size) in enumerate(zip(spec.shape, inputs[name].shape, strict=True)):
            _bind(spec, axis, dim, size, sizes, owners)
    return sizes


def check_names(kind: str, declared: Iterable[str], given: Iterable[str]) -> None:
    """Raise InvalidArgument if `given` holds a name that is not among the `declared` inputs or outputs."""
    known = list(declared)
    for name in given:
        if name not in known:
            close = get_close_matches(name, known, n=1)
            hint = f", did you mean {close[0]!r}?" if close else f"; the model has {_listed(known)}"
            raise InvalidArgument(f"unknown {kind} {name!r}{hint}")


def _check_tensor(spec: TensorSpec, array: Array) -> None:
    given = DType.from_numpy(array.dtype)
    if given is not spec.dtype:
        raise InvalidArgument(f"input {spec.name!r} has datatype {given.wire}, expected {spec.dtype.wire}")
    if array.ndim != len(spec.shape):
        raise InvalidArgument(
            f"input {spec.name!r} has shape {list(array.shape)} of rank {array.ndim}, expected {_shape(spec)} "
            f"of rank {len(spec.shape)}"
        )


def _bind(
    spec: TensorSpec, axis: int, dim: int | str, size: int, sizes: dict[str, int], owners: dict[str, str]
) -> None:
    if isinstance(dim, int):
        if dim != size:
            raise InvalidArgument(
                f"input {spec.name!r} has size {size} on axis {axis}, expected {dim} (declared shape {_shape(spec)})"
            )
    elif dim and sizes.setdefault(dim, size) != size:
        raise InvalidArgument(
            f"dim {dim!r} is {sizes[dim]} in input {owners[dim]!r} and {size} in input {spec.name!r} (axis {axis}); "
            "they must agree"
        )
    elif dim:
        owners.setdefault(dim, spec.name)


def _shape(spec: TensorSpec) -> str:
    return "[" + ", ".join(str(dim) or "?" for dim in spec.shape) + "]"


def _listed(names: Iterable[str]) -> str:
    return ", ".join(repr(name) for name in names) or "none"
