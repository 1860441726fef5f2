"""What a model keeps of a sequence: declared in model.yaml, compared with its graph; knows no sequence and no queue."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np

from tidemill.bundle.sequence_config import ControlConfig, SequenceConfig, StateConfig
from tidemill.dtype import DType
from tidemill.errors import ConfigError, InvalidArgument
from tidemill.protocol.types import Array, TensorSpec

__all__ = ["States", "declare_states"]

Id: TypeAlias = int | str

_FOLDER = "initial_state"
"""Where files with initial values lie, in the model's folder, as Triton has it."""


@dataclass(frozen=True, slots=True)
class _State:
    """One kept tensor: `spec` is the input's, with `shape` what an axis is at first where its size is free."""

    spec: TensorSpec
    output: str
    shape: tuple[int | str, ...]
    value: Array

    def initial(self, sizes: Mapping[str, int]) -> Array:
        shape = tuple(dim if isinstance(dim, int) else sizes[dim] for dim in self.shape)
        return np.ascontiguousarray(np.broadcast_to(self.value, shape))


@dataclass(frozen=True, slots=True)
class States:
    """What stands between a caller's tensors and the model's.

    Attributes:
        inputs: What callers send.
        outputs: What callers get.
    """

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    _states: tuple[_State, ...]
    _controls: tuple[tuple[ControlConfig, TensorSpec], ...]

    def initial(self, sizes: Mapping[str, int]) -> dict[str, Array]:
        """The kept tensors of a new sequence, by input name; `sizes` are those of the caller's symbolic dims."""
        return {state.spec.name: state.initial(sizes) for state in self._states}

    def kept(self, outputs: Mapping[str, Array]) -> dict[str, Array]:
        """The kept tensors after a run, by input name, in memory of their own."""
        return {state.spec.name: _owned(outputs[state.output]) for state in self._states}

    def told(self, sequence: Id, sizes: Mapping[str, int], *, start: bool, end: bool) -> dict[str, Array]:
        """The control inputs of one request.

        Raises:
            InvalidArgument: The id does not fit the model's input for it.
        """
        flags = {"start": start, "end": end, "ready": True}
        return {
            spec.name: _identity(spec, sequence, sizes)
            if control.kind == "id"
            else _full(spec, control.values[flags[control.kind]], sizes)
            for control, spec in self._controls
        }


def declare_states(
    config: SequenceConfig, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec], batch: str, folder: Path
) -> States:
    """Compare the section `sequence` with a graph.

    Args:
        config: The section.
        inputs: The graph's inputs.
        outputs: The graph's outputs.
        batch: The symbol of the batch axis; "" if the model is not batched.
        folder: The model's folder.

    Raises:
        ConfigError: Names, dtypes or shapes do not fit each other; the message holds every fault.
    """
    by_name, made = {spec.name: spec for spec in inputs}, {spec.name: spec for spec in outputs}
    faults = [*_faults(config, by_name, made)]
    if faults:
        raise ConfigError(f"sequence: {'; '.join(faults)}")
    taken = {state.input for state in config.state} | {control.input for control in config.controls}
    given = tuple(spec for spec in inputs if spec.name not in taken)
    known = {dim for spec in given for dim in spec.shape if isinstance(dim, str) and dim} | {batch}
    hidden = {state.output for state in config.state if not state.shown}
    return States(
        given,
        tuple(spec for spec in outputs if spec.name not in hidden),
        tuple(_declare(state, by_name[state.input], known, batch, folder) for state in config.state),
        tuple((control, by_name[control.input]) for control in config.controls),
    )


def _faults(
    config: SequenceConfig, inputs: Mapping[str, TensorSpec], outputs: Mapping[str, TensorSpec]
) -> Iterator[str]:
    named = [state.input for state in config.state] + [control.input for control in config.controls]
    for name in dict.fromkeys(named):
        if name not in inputs:
            yield f"the model has no input {name!r}; it has {', '.join(inputs)}"
        if named.count(name) > 1:
            yield f"input {name!r} stands there {named.count(name)} times"
    for state in config.state:
        if state.output not in outputs:
            yield f"the model has no output {state.output!r}; it has {', '.join(outputs)}"
        elif state.input in inputs and not _fits(inputs[state.input], outputs[state.output]):
            yield f"output {outputs[state.output]} cannot become input {inputs[state.input]}"


def _fits(taken: TensorSpec, made: TensorSpec) -> bool:
    if taken.dtype is not made.dtype or len(taken.shape) != len(made.shape):
        return False
    pairs = zip(taken.shape, made.shape, strict=True)
    return all(one == other or isinstance(one, str) or isinstance(other, str) for one, other in pairs)


def _declare(state: StateConfig, spec: TensorSpec, known: set[str], batch: str, folder: Path) -> _State:
    shape = spec.shape
    if state.shape is not None:
        ahead = shape[:1] if batch and shape[:1] == (batch,) else ()
        if len(ahead) + len(state.shape) != len(shape):
            expected = len(shape) - len(ahead)
            raise ConfigError(f"sequence: shape {list(state.shape)} of input {spec} must have {expected} sizes")
        shape = (*ahead, *state.shape)
    free = [dim for dim in shape if isinstance(dim, str) and dim not in known]
    if free:
        raise ConfigError(f"sequence: give the `shape` of input {spec} at the start: {', '.join(free) or '?'} is open")
    return _State(spec, state.output, shape, _value(state, spec, shape, folder))


def _value(state: StateConfig, spec: TensorSpec, shape: tuple[int | str, ...], folder: Path) -> Array:
    dtype = spec.dtype.to_numpy()
    if not isinstance(state.initial, str):
        return np.array(str(state.initial or "").encode() if spec.dtype is DType.string else state.initial, dtype)
    path = folder / _FOLDER / state.initial
    if not path.resolve().is_relative_to(folder.resolve()) or not path.is_file():
        raise ConfigError(f"sequence: the model's folder has no file {_FOLDER}/{state.initial}")
    sizes = [dim if isinstance(dim, int) else 1 for dim in shape]
    values = np.frombuffer(path.read_bytes(), np.uint8)
    if values.size != np.prod(sizes, dtype=np.int64) * dtype.itemsize:
        raise ConfigError(f"sequence: {state.initial} has {values.size} bytes, expected {spec.dtype.wire} of {sizes}")
    return values.view(dtype).reshape(sizes)


def _owned(array: Array) -> Array:
    """Not a view, which would keep the memory of a whole batch alive for as long as the sequence goes on."""
    return array if array.base is None else array.copy()


def _full(spec: TensorSpec, value: float, sizes: Mapping[str, int]) -> Array:
    shape = [dim if isinstance(dim, int) else sizes.get(dim, 1) for dim in spec.shape]
    return np.full(shape, value, spec.dtype.to_numpy())


def _identity(spec: TensorSpec, sequence: Id, sizes: Mapping[str, int]) -> Array:
    filled = _full(spec, 0, sizes)
    if spec.dtype is DType.string:
        filled[...] = str(sequence).encode()
        return filled
    limits = np.iinfo(filled.dtype)
    if not isinstance(sequence, int) or not limits.min <= sequence <= limits.max:
        raise InvalidArgument(f"parameter 'sequence_id' is {sequence!r}, the model takes {spec.dtype.wire}")
    filled[...] = sequence
    return filled
