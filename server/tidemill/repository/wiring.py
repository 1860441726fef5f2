"""How the models of an ensemble hang together: checked against their signatures, all faults at once; runs nothing."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter

from tidemill.bundle.ensemble_config import EnsembleConfig, StepConfig, TensorConfig
from tidemill.errors import ConfigError
from tidemill.protocol.types import TensorSpec
from tidemill.repository.declared import matches
from tidemill.repository.dims import Dims

__all__ = ["Member", "Wiring", "wire"]


@dataclass(frozen=True, slots=True)
class Member:
    """What a step's model takes and makes."""

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]


@dataclass(frozen=True, slots=True)
class Wiring:
    """An ensemble that can be run.

    Attributes:
        inputs: What callers send.
        outputs: What callers get.
        order: The steps by number, none before one that it waits for.
        needs: The steps that each waits for.
    """

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    order: tuple[int, ...]
    needs: Mapping[int, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class _End:
    """Where a tensor comes from or goes to."""

    step: int
    model: str
    spec: TensorSpec
    dims: Sequence[Hashable]

    def __str__(self) -> str:
        return f"{self.spec} of {self.model!r}"


def wire(config: EnsembleConfig, members: Sequence[Member]) -> Wiring:
    """Check an ensemble.

    Args:
        config: The section `ensemble`.
        members: What the model of each step takes and makes.

    Raises:
        ConfigError: Names, dtypes or shapes do not fit, a tensor is made twice or never, or steps wait for each other;
            the message holds every fault.
    """
    plan = _Plan(config, members)
    faults = [*plan.check_names(), *plan.check_tensors(), *plan.check_order()]
    if faults:
        raise ConfigError(f"ensemble: {'; '.join(faults)}")
    return plan.wiring()


class _Plan:
    def __init__(self, config: EnsembleConfig, members: Sequence[Member]) -> None:
        self._config = config
        self._members = members
        self._dims = Dims()
        self._makers: dict[str, list[_End]] = {}
        self._takers: dict[str, list[_End]] = {}
        for number, (step, member) in enumerate(zip(config.steps, members, strict=True)):
            self._collect(number, step.model, step.inputs, member.inputs, self._takers)
            self._collect(number, step.model, step.outputs, member.outputs, self._makers)
        given = [tensor.name for tensor in config.inputs]
        self._inputs = given or [name for name in self._takers if name not in self._makers]
        wanted = [tensor.name for tensor in config.outputs]
        self._outputs = wanted or [name for name in self._makers if name not in self._takers]
        self._needs: dict[int, tuple[int, ...]] = {}

    def check_names(self) -> Iterator[str]:
        """Inputs and outputs that a step's model does not have, or does not get."""
        for step, member in zip(self._config.steps, self._members, strict=True):
            yield from _unknown(step, "input", step.inputs, member.inputs)
            yield from _unknown(step, "output", step.outputs, member.outputs)
            missing = [str(spec) for spec in member.inputs if spec.name not in step.inputs]
            if missing:
                yield f"step {step.model!r} lacks the input {', '.join(missing)}"

    def check_tensors(self) -> Iterator[str]:
        """Tensors that nobody or several make, that nobody takes, or that do not fit where they go."""
        for name, makers in self._makers.items():
            if len(makers) > 1:
                yield f"tensor {name!r} is made by {' and by '.join(repr(end.model) for end in makers)}"
            if name in self._inputs:
                yield f"tensor {name!r} is an input, and made by {makers[0].model!r}"
        for name in self._takers:
            if name not in self._makers and name not in self._inputs:
                yield f"tensor {name!r} is made by no step and is no input of the ensemble"
        yield from (f"input {name!r} is taken by no step" for name in self._inputs if name not in self._takers)
        yield from (f"output {name!r} is made by no step" for name in self._outputs if name not in self._makers)
        for name in {**self._makers, **self._takers}:
            yield from self._check_ends(name)
        for tensor in (*self._config.inputs, *self._config.outputs):
            yield from self._check_declared(tensor)

    def check_order(self) -> Iterator[str]:
        """Steps that wait for each other."""
        for number, step in enumerate(self._config.steps):
            makers = [end.step for tensor in step.inputs.values() for end in self._makers.get(tensor, ())]
            self._needs[number] = tuple(dict.fromkeys(makers))
        try:
            TopologicalSorter(self._needs).prepare()
        except CycleError as error:
            names = [self._config.steps[number].model for number in error.args[1]]
            yield f"the steps wait for each other: {' -> '.join(names)}"

    def wiring(self) -> Wiring:
        """The result, after no check found a fault."""
        order = tuple(TopologicalSorter(self._needs).static_order())
        inputs = tuple(self._spec(name, self._takers[name][0]) for name in self._inputs)
        outputs = tuple(self._spec(name, self._makers[name][0]) for name in self._outputs)
        return Wiring(inputs, outputs, order, self._needs)

    def _collect(
        self,
        number: int,
        model: str,
        names: Mapping[str, str],
        specs: Sequence[TensorSpec],
        ends: dict[str, list[_End]],
    ) -> None:
        for spec in specs:
            if spec.name in names:
                place = (id(ends), spec.name)
                end = _End(number, model, spec, self._dims.declare(number, place, spec.shape))
                ends.setdefault(names[spec.name], []).append(end)

    def _check_ends(self, name: str) -> Iterator[str]:
        ends = self._makers.get(name, []) + self._takers.get(name, [])
        first = ends[0]
        for other in ends[1:]:
            if first.spec.dtype is not other.spec.dtype:
                yield f"tensor {name!r} is {first} and {other}, which differ in datatype"
            elif len(first.dims) != len(other.dims):
                yield f"tensor {name!r} is {first} and {other}, which differ in rank"
            elif not all(map(self._dims.join, first.dims, other.dims)):
                yield f"tensor {name!r} is {first} and {other}, which differ in size"

    def _check_declared(self, tensor: TensorConfig) -> Iterator[str]:
        ends = [*self._makers.get(tensor.name, ()), *self._takers.get(tensor.name, ())]
        if not ends:
            return
        spec = ends[0].spec
        if tensor.datatype and tensor.datatype != spec.dtype.wire:
            yield f"tensor {tensor.name!r} is declared as {tensor.datatype}, but is {ends[0]}"
        if tensor.shape is not None and not matches(tensor.shape, spec.shape):
            yield f"tensor {tensor.name!r} is declared with shape {list(tensor.shape)}, but is {ends[0]}"

    def _spec(self, name: str, end: _End) -> TensorSpec:
        return TensorSpec(name, end.spec.dtype, tuple(self._dims.dim(dim) for dim in end.dims))


def _unknown(step: StepConfig, kind: str, named: Mapping[str, str], specs: Sequence[TensorSpec]) -> Iterator[str]:
    known = [spec.name for spec in specs]
    for name in named:
        if name not in known:
            yield f"model {step.model!r} has no {kind} {name!r}; it has {', '.join(known)}"
