"""Whether tensors are what a configuration says of them; knows neither files nor models."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tidemill.bundle.config import DeclaredConfig
from tidemill.bundle.ensemble_config import TensorConfig
from tidemill.errors import ConfigError
from tidemill.protocol.types import TensorSpec

__all__ = ["check_declared", "matches"]


def check_declared(declared: DeclaredConfig, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]) -> None:
    """Compare what was declared with what a graph has; what is not declared is not compared.

    Raises:
        ConfigError: A name, datatype or size is another; the message holds every fault.
    """
    faults = [*_faults("input", declared.inputs, inputs), *_faults("output", declared.outputs, outputs)]
    if faults:
        raise ConfigError(f"the configuration contradicts the graph: {'; '.join(faults)}")


def matches(declared: Sequence[int], shape: Sequence[int | str]) -> bool:
    """Whether a shape can be the declared one, in which -1 stands for any size."""
    if len(declared) != len(shape):
        return False
    return all(one == -1 or isinstance(other, str) or one == other for one, other in zip(declared, shape, strict=True))


def _faults(kind: str, declared: Sequence[TensorConfig], specs: Sequence[TensorSpec]) -> Iterator[str]:
    known = {spec.name: spec for spec in specs}
    for tensor in declared:
        spec = known.get(tensor.name)
        if spec is None:
            yield f"it has no {kind} {tensor.name!r}, but {', '.join(known)}"
        elif tensor.datatype not in (None, spec.dtype.wire):
            yield f"{kind} {tensor.name!r} is declared as {tensor.datatype}, but is {spec}"
        elif tensor.shape is not None and not matches(tensor.shape, spec.shape):
            yield f"{kind} {tensor.name!r} is declared with shape {list(tensor.shape)}, but is {spec}"
