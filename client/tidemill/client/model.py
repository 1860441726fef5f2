"""A model's inputs checked against its signature before anything is sent; sends nothing itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tidemill.client.feed import as_tensor
from tidemill.dtype import DType
from tidemill.errors import InvalidArgument
from tidemill.protocol.types import Array, ModelMetadata, TensorSpec

__all__ = ["check_inputs", "check_outputs"]


def check_inputs(model: ModelMetadata, inputs: Mapping[str, Any]) -> dict[str, Array]:
    """The inputs as arrays that fit the model; an input that is missing may be optional, so the server judges it.

    Raises:
        InvalidArgument: A name is unknown, or an array has another dtype, rank or size than the model takes; names
            the input, what was given and what is expected.
    """
    specs = {spec.name: spec for spec in model.inputs}
    sizes: dict[str, tuple[int, str]] = {}
    arrays: dict[str, Array] = {}
    for name, value in inputs.items():
        if not specs:
            # KServe, for one, tells no signature unless the model brings it.
            arrays[name] = as_tensor(name, value)
            continue
        if name not in specs:
            raise InvalidArgument(f"model {model.name!r} has no input {name!r}; it has {', '.join(map(repr, specs))}")
        arrays[name] = as_tensor(name, value)
        _check(specs[name], arrays[name], sizes)
    return arrays


def check_outputs(model: ModelMetadata, names: Sequence[str]) -> None:
    """InvalidArgument if the model has no output of one of the names."""
    known = [spec.name for spec in model.outputs]
    for name in names:
        if known and name not in known:
            raise InvalidArgument(f"model {model.name!r} has no output {name!r}; it has {', '.join(map(repr, known))}")


def _check(spec: TensorSpec, array: Array, sizes: dict[str, tuple[int, str]]) -> None:
    given = DType.from_numpy(array.dtype)
    if given is not spec.dtype:
        raise InvalidArgument(
            f"input {spec.name!r} holds {given.wire}, expected {spec.dtype.wire}; "
            f"nothing is cast silently: give array.astype({str(spec.dtype.to_numpy())!r})"
        )
    fits = len(spec.shape) == array.ndim and all(
        dim == size or not isinstance(dim, int) or dim < 0 for dim, size in zip(spec.shape, array.shape, strict=True)
    )
    if not fits:
        raise InvalidArgument(f"input {spec.name!r} has shape {list(array.shape)}, expected {spec}")
    for dim, size in zip(spec.shape, array.shape, strict=True):
        if isinstance(dim, str) and dim:
            other, name = sizes.setdefault(dim, (size, spec.name))
            if other != size:
                raise InvalidArgument(f"dim {dim!r} is {other} in input {name!r} and {size} in input {spec.name!r}")
